//! A page of text as wide as the screen that it is for: marks, tables that leave out what does not fit, prose that is folded.
//!
//! Pure: the width and whether there are colours are given, so that tests see what people see. Never: a colour as the only thing that tells good
//! from bad (the marks differ), or a table whose rows are broken by a narrow screen.

use comfy_table::Table;
use comfy_table::presets::NOTHING;

use super::{Tone, coloured, is_terminal};

/// Nobody reads prose that is wider.
const WIDEST: usize = 200;
/// Below this nothing fits anyway.
const NARROWEST: usize = 40;

/// What a page is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Screen {
    /// Columns of text.
    pub width: usize,
    /// Whether there are colours.
    pub colours: bool,
}

impl Screen {
    /// The one that we write to. A pipe has no width of its own, unless COLUMNS says one.
    pub fn here() -> Self {
        let said = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        let terminal = || terminal_size::terminal_size().filter(|_| is_terminal()).map(|(width, _)| width.0.into());
        let width: usize = said.or_else(terminal).unwrap_or(WIDEST);
        Self { width: width.clamp(NARROWEST, WIDEST), colours: super::has_colours(&std::io::stdout()) }
    }

    /// One without colours.
    #[cfg(test)]
    pub fn plain(width: usize) -> Self {
        Self { width, colours: false }
    }

    /// Text in a colour, where there are colours.
    pub fn paint(self, text: &str, tone: Tone) -> String {
        if self.colours { coloured(text, tone) } else { text.to_owned() }
    }

    /// Text folded at words, every line but the first behind so many spaces; the first begins at `at` already.
    pub fn folded(self, text: &str, at: usize, indent: usize) -> String {
        let (mut result, mut used) = (String::new(), at);
        for word in text.split_whitespace() {
            let length = seen(word);
            if used > indent.max(at) && used + 1 + length > self.width {
                result.push('\n');
                result.extend(std::iter::repeat_n(' ', indent));
                used = indent;
            } else if !result.is_empty() {
                result.push(' ');
                used += 1;
            }
            result.push_str(word);
            used += length;
        }
        result
    }

    /// A line that begins with a mark and goes on with prose.
    pub fn marked(self, mark: Mark, text: &str) -> String {
        format!("{} {}", mark.painted(self), self.folded(text, 2, 2))
    }

    /// A line of a list of facts: what, and then the fact, folded below itself.
    pub fn fact(self, what: &str, text: &str) -> String {
        let label = format!("{what:<LABEL$}");
        format!("  {}{}", self.paint(&label, Tone::Faint), self.folded(text, 2 + LABEL, 2 + LABEL))
    }
}

/// How many columns a text takes: colours take none.
fn seen(text: &str) -> usize {
    let mut in_code = false;
    let shown = text.chars().filter(|character| {
        let was = in_code;
        in_code = *character == '\x1b' || (was && *character != 'm');
        !was && !in_code
    });
    shown.count()
}

/// The width of what a fact is about.
const LABEL: usize = 13;

/// How something is, at a glance. Each has a sign of its own, so that it can be told without colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mark {
    /// As it should be.
    Good,
    /// Of no weight, or not known.
    Plain,
    /// Stopped, as a person wants it.
    Stopped,
    /// On its way, or something to look after.
    Busy,
    /// Not as it should be.
    Bad,
}

impl Mark {
    /// Its sign.
    pub fn sign(self) -> &'static str {
        match self {
            Self::Good => "●",
            Self::Plain => "·",
            Self::Stopped => "◌",
            Self::Busy => "○",
            Self::Bad => "✗",
        }
    }

    /// Its colour.
    pub fn tone(self) -> Tone {
        match self {
            Self::Good => Tone::Good,
            Self::Plain => Tone::Faint,
            Self::Stopped => Tone::Strong,
            Self::Busy => Tone::Busy,
            Self::Bad => Tone::Bad,
        }
    }

    fn painted(self, screen: Screen) -> String {
        screen.paint(self.sign(), self.tone())
    }
}

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its heading.
    pub head: &'static str,
    /// 0 for one that is always shown; of the others the highest goes first where they don't all fit.
    pub gives_way: u8,
}

/// A row of a table, with what is said of it below.
#[derive(Clone, Debug)]
pub struct Row {
    /// How it is.
    pub mark: Mark,
    /// One for each column.
    pub cells: Vec<String>,
    /// Prose below the row.
    pub below: Vec<String>,
}

/// The lines of a table. Columns in which nothing is said are left out, and those for which there is no room.
pub fn table(screen: Screen, columns: &[Column], rows: &[Row]) -> Vec<String> {
    let said = |index: usize| rows.iter().any(|row| row.cells.get(index).is_some_and(|cell| !cell.is_empty()));
    let mut shown: Vec<usize> = (0..columns.len()).filter(|index| said(*index)).collect();
    let lines = loop {
        let lines = drawn(columns, rows, &shown);
        let widest = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
        let yields = shown.iter().copied().filter(|index| columns[*index].gives_way > 0);
        match yields.max_by_key(|index| columns[*index].gives_way) {
            Some(least) if widest + 2 > screen.width => shown.retain(|index| *index != least),
            _ => break lines,
        }
    };
    let mut result = vec![];
    for (index, line) in lines.iter().enumerate() {
        match index.checked_sub(1).and_then(|row| rows.get(row)) {
            None => result.push(format!("  {}", screen.paint(line, Tone::Faint))),
            Some(row) => {
                result.push(format!("{} {line}", row.mark.painted(screen)));
                result.extend(row.below.iter().map(|text| format!("    {}", screen.folded(text, 4, 4))));
            }
        }
    }
    result
}

fn drawn(columns: &[Column], rows: &[Row], shown: &[usize]) -> Vec<String> {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(shown.iter().map(|index| columns[*index].head));
    for row in rows {
        // A line break would make two lines of one row.
        let cell = |index: &usize| row.cells.get(*index).map(|text| text.replace('\n', " ")).unwrap_or_default();
        table.add_row(shown.iter().map(cell).map(|text| if text.is_empty() { "-".to_owned() } else { text }));
    }
    // The style puts a space before every line.
    table.lines().map(|line| line.trim_end().strip_prefix(' ').unwrap_or(&line).trim_end().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 3] = [
        Column { head: "NAME", gives_way: 0 },
        Column { head: "WHERE", gives_way: 2 },
        Column { head: "HOW", gives_way: 1 },
    ];

    fn row(cells: [&str; 3]) -> Row {
        Row { mark: Mark::Good, cells: cells.map(str::to_owned).to_vec(), below: vec![] }
    }

    #[test]
    fn prose_is_folded_at_words_and_begins_again_below_itself() {
        let screen = Screen::plain(20);
        assert_eq!(screen.folded("one two three four five", 0, 2), "one two three four\n  five");
        assert_eq!(
            screen.folded("an-address-that-is-longer-than-that b", 0, 2),
            "an-address-that-is-longer-than-that\n  b"
        );
        assert_eq!(screen.fact("primary", "demo-1 of three instances").lines().count(), 4);
    }

    #[test]
    fn colours_take_no_room() {
        let colours = Screen { width: 12, colours: true };
        let painted = format!("{} four five six", colours.paint("one two", Tone::Good));
        let folded = colours.folded(&painted, 0, 0);
        assert_eq!(folded.lines().map(seen).collect::<Vec<_>>(), [12, 8], "{folded:?}");
    }

    #[test]
    fn what_does_not_fit_is_left_out_by_its_weight_and_no_row_is_broken() {
        let rows = [row(["orders-1", "node-with-a-long-name", "streaming"])];
        let wide = table(Screen::plain(80), &COLUMNS, &rows);
        assert!(wide[1].contains("node-with-a-long-name") && wide[1].contains("streaming"), "{wide:?}");
        let narrow = table(Screen::plain(30), &COLUMNS, &rows);
        assert!(!narrow[1].contains("node") && narrow[1].contains("streaming"), "{narrow:?}");
        let tiny = table(Screen::plain(5), &COLUMNS, &rows);
        assert_eq!(tiny[1], "● orders-1");
    }

    #[test]
    fn a_column_of_which_nothing_is_known_is_not_there() {
        let lines = table(Screen::plain(80), &COLUMNS, &[row(["orders-1", "", "x"]), row(["orders-2", "", ""])]);
        assert!(!lines[0].contains("WHERE"), "{lines:?}");
        assert!(lines[2].ends_with('-'), "{lines:?}");
    }

    #[test]
    fn no_two_marks_look_the_same_without_colours() {
        let marks = [Mark::Good, Mark::Plain, Mark::Stopped, Mark::Busy, Mark::Bad];
        let signs: std::collections::BTreeSet<_> = marks.iter().map(|mark| mark.sign()).collect();
        assert_eq!(signs.len(), marks.len());
    }
}
