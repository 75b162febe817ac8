//! Asks a person before something is done that can't be taken back by doing nothing.
//!
//! Never: takes silence, a pipe or the end of a file for a yes.

use std::io::{BufRead, IsTerminal, Write};

use crate::output;

/// What has to be typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word<'a> {
    /// `y` or `yes`.
    Yes,
    /// This name: for what is worse than a nuisance when it was meant for another.
    Name(&'a str),
}

/// Why there is no consent.
#[derive(Debug, thiserror::Error)]
pub enum NoConsent {
    /// There is nobody to ask.
    #[error("nothing was done: standard input is no terminal, so nobody can be asked; --yes answers in advance")]
    NobodyToAsk,
    /// The answer was another one.
    #[error("nothing was done")]
    Declined,
}

/// Shows what will happen and asks, unless that was answered in advance.
pub fn ask(what_will_happen: &str, word: Word<'_>, answered: bool) -> Result<(), NoConsent> {
    output::line(what_will_happen);
    if answered {
        return Ok(());
    }
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Err(NoConsent::NobodyToAsk);
    }
    let question = match word {
        Word::Yes => "Go on? [y/N] ".to_owned(),
        Word::Name(name) => format!("Type {name} to go on: "),
    };
    let mut stdout = std::io::stdout();
    let _nobody_reads = stdout.write_all(question.as_bytes()).and_then(|()| stdout.flush());
    let mut typed = String::new();
    match stdin.lock().read_line(&mut typed) {
        Ok(_) if word.is(typed.trim()) => Ok(()),
        Ok(_) | Err(_) => Err(NoConsent::Declined),
    }
}

impl Word<'_> {
    fn is(self, typed: &str) -> bool {
        match self {
            Self::Yes => typed.eq_ignore_ascii_case("y") || typed.eq_ignore_ascii_case("yes"),
            Self::Name(name) => typed == name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_word_itself_is_a_yes() {
        assert!(Word::Yes.is("y") && Word::Yes.is("YES"));
        assert!(!Word::Yes.is("") && !Word::Yes.is("yess"));
        assert!(Word::Name("demo").is("demo"));
        assert!(!Word::Name("demo").is("y") && !Word::Name("demo").is("Demo") && !Word::Name("demo").is(""));
    }
}
