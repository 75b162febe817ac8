//! The canonical form of a quantity, as Kubernetes writes it back: `1024Mi` is `1Gi`, `0.5` is `500m`.

/// The canonical form, or none when the text is no quantity.
pub(crate) fn canonical(text: &str) -> Option<String> {
    let split = text.find(|c: char| !matches!(c, '0'..='9' | '.' | '+' | '-')).unwrap_or(text.len());
    let (number, suffix) = text.split_at(split);
    let (negative, digits) = match number.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, number.strip_prefix('+').unwrap_or(number)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !all_digits(whole) || !all_digits(fraction) {
        return None;
    }
    let sign = if negative { "-" } else { "" };
    let nanos = nanos(whole, fraction)?;
    if let Some(power) = binary_power(suffix) {
        return Some(format!("{sign}{}", binary(nanos.checked_mul(1i128 << (10 * power))?)));
    }
    if let Some(exponent) = decimal_exponent(suffix) {
        return Some(format!("{sign}{}", decimal(scaled(nanos, exponent)?)));
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    Some(format!("{sign}{}", scientific(scaled(nanos, exponent)?)))
}

/// Value × 10⁹, rounded up: nothing smaller than a nano is kept.
fn nanos(whole: &str, fraction: &str) -> Option<i128> {
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let kept: String = format!("{fraction:0<9}").chars().take(9).collect();
    let lost = fraction.len() > 9 && fraction[9..].bytes().any(|byte| byte != b'0');
    whole.checked_mul(1_000_000_000)?.checked_add(kept.parse::<i128>().ok()? + i128::from(lost))
}

fn scaled(nanos: i128, exponent: i32) -> Option<i128> {
    let factor = 10i128.checked_pow(exponent.unsigned_abs())?;
    if exponent >= 0 { nanos.checked_mul(factor) } else { Some((nanos + factor - 1) / factor) }
}

fn binary_power(suffix: &str) -> Option<u32> {
    ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].iter().position(|one| *one == suffix).map(|index| index as u32 + 1)
}

const DECIMAL: &[(&str, i32)] =
    &[("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];

fn decimal_exponent(suffix: &str) -> Option<i32> {
    DECIMAL.iter().find(|(name, _)| *name == suffix).map(|(_, exponent)| *exponent)
}

const NANO: i128 = 1_000_000_000;

fn binary(nanos: i128) -> String {
    if nanos % NANO != 0 {
        return decimal(nanos);
    }
    let mut value = nanos / NANO;
    let mut power = 0;
    while value != 0 && value % 1024 == 0 && power < 6 {
        value /= 1024;
        power += 1;
    }
    format!("{value}{}", ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][power])
}

/// The largest suffix that leaves no fraction.
fn decimal(nanos: i128) -> String {
    let (mantissa, exponent) = shortened(nanos, 18);
    let suffix = DECIMAL.iter().find(|(_, one)| *one == exponent).map_or("", |(name, _)| name);
    format!("{mantissa}{suffix}")
}

fn scientific(nanos: i128) -> String {
    let (mantissa, exponent) = shortened(nanos, 36);
    if exponent == 0 { mantissa.to_string() } else { format!("{mantissa}e{exponent}") }
}

fn shortened(nanos: i128, most: i32) -> (i128, i32) {
    if nanos == 0 {
        return (0, 0);
    }
    let (mut mantissa, mut exponent) = (nanos, -9);
    while mantissa % 1000 == 0 && exponent < most {
        mantissa /= 1000;
        exponent += 3;
    }
    (mantissa, exponent)
}

#[cfg(test)]
mod tests {
    use super::canonical;

    #[test]
    fn quantities_are_written_as_kubernetes_writes_them() {
        for (given, wanted) in [
            ("1", "1"),
            ("0", "0"),
            ("1024Mi", "1Gi"),
            ("100Gi", "100Gi"),
            ("1.5Gi", "1536Mi"),
            ("0.5", "500m"),
            ("1000m", "1"),
            ("100m", "100m"),
            ("1000", "1k"),
            ("1e3", "1e3"),
            ("-1", "-1"),
            ("0.5Ki", "512"),
            ("1024Ki", "1Mi"),
            ("5M", "5M"),
        ] {
            assert_eq!(canonical(given).as_deref(), Some(wanted), "{given}");
        }
    }

    #[test]
    fn what_is_no_quantity_is_refused() {
        for given in ["", "x", "1Qi", "1.2.3", "Gi", "1 Gi", "--1"] {
            assert_eq!(canonical(given), None, "{given}");
        }
    }
}
