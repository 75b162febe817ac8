//! Kubernetes quantities (`10Gi`, `1500M`, `0.5`) as numbers that can be compared.
//!
//! The API server rewrites them (`1024Mi` becomes `1Gi`), so comparing the text would find a difference where there is none,
//! and write it, for ever.

/// The value in thousandths; `None` for what isn't a quantity. Rounded up below a thousandth, as Kubernetes does.
pub fn millis(text: &str) -> Option<i128> {
    let digits_end = text.find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | '+' | '-')).unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits_end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.len() > 9 || whole.len() > 18 || (whole.is_empty() && fraction.is_empty()) {
        return None;
    }
    let negative = whole.starts_with('-');
    let unsigned = whole.trim_start_matches(['+', '-']);
    let nanos: i128 = format!("{unsigned}{fraction:0<9}").parse().ok()?;
    let scaled = match suffix {
        "" => nanos,
        "n" => nanos / 1_000_000_000,
        "u" => nanos / 1_000_000,
        "m" => nanos / 1_000,
        "k" | "M" | "G" | "T" | "P" | "E" => nanos.checked_mul(1000i128.pow(1 + position("kMGTPE", suffix)?))?,
        "Ki" | "Mi" | "Gi" | "Ti" | "Pi" | "Ei" => {
            nanos.checked_mul(1024i128.pow(1 + position("KMGTPE", &suffix[..1])?))?
        }
        _ => {
            let exponent: u32 = suffix.strip_prefix(['e', 'E'])?.parse().ok().filter(|e| *e <= 18)?;
            nanos.checked_mul(10i128.pow(exponent))?
        }
    };
    let millis = (scaled + 999_999) / 1_000_000;
    Some(if negative { -millis } else { millis })
}

fn position(suffixes: &str, suffix: &str) -> Option<u32> {
    suffixes.find(suffix).and_then(|at| u32::try_from(at).ok())
}

#[cfg(test)]
mod tests {
    use super::millis;

    #[test]
    fn the_same_size_in_other_words_is_the_same() {
        assert_eq!(millis("1024Mi"), millis("1Gi"));
        assert_eq!(millis("0.5"), millis("500m"));
        assert_eq!(millis("1e3"), millis("1k"));
        assert_eq!(millis("1.5Gi"), millis("1536Mi"));
        assert!(millis("1G") < millis("1Gi"));
    }

    #[test]
    fn what_is_not_a_quantity_is_nothing() {
        for text in ["", "Gi", "ten", "1Xi", "1 Gi", "1e99", "1.2.3"] {
            assert_eq!(millis(text), None, "{text}");
        }
    }
}
