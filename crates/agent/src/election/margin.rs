//! How close a leader's tenure came to its end before it was extended: what the length of a promise is argued from.
//!
//! Never: a line for each promise. It is told when less was left than ever since it began to lead, and less than it has with every promise
//! fresh.

use bellwether_core::election::{Deadline, Moment, Span};

/// The least that was left.
#[derive(Debug, Default)]
pub struct Margin {
    least: Option<Span>,
}

impl Margin {
    /// It leads anew.
    pub fn begin(&mut self) {
        self.least = None;
    }

    /// Tenure, which ended `before`, is extended to `until`. Answers what was left of it, if that is worth telling.
    pub fn extended(&mut self, before: Deadline, until: Deadline, now: Moment, enough: Span) -> Option<Span> {
        let (Deadline::At(before), Deadline::At(until)) = (before, until) else { return None };
        if until <= before || before <= now {
            return None;
        }
        let left = before.since(now);
        let least = left < self.least.unwrap_or(enough);
        self.least = if least { Some(left) } else { self.least };
        least.then_some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(moment: u64) -> Deadline {
        Deadline::At(Moment(moment))
    }

    #[test]
    fn only_what_was_closer_than_ever_is_told() {
        let (mut margin, enough) = (Margin::default(), Span(2_000));
        assert_eq!(margin.extended(at(4_000), at(5_000), Moment(1_000), enough), None, "all is well");
        assert_eq!(margin.extended(at(5_000), at(7_000), Moment(3_500), enough), Some(Span(1_500)));
        assert_eq!(margin.extended(at(7_000), at(8_000), Moment(5_400), enough), None, "it was closer before");
        assert_eq!(margin.extended(at(8_000), at(9_000), Moment(7_900), enough), Some(Span(100)));
        margin.begin();
        assert_eq!(margin.extended(at(9_000), at(9_900), Moment(7_500), enough), Some(Span(1_500)));
    }

    #[test]
    fn tenure_that_ends_or_has_no_end_has_no_margin() {
        let (mut margin, enough) = (Margin::default(), Span(2_000));
        assert_eq!(margin.extended(at(4_000), at(0), Moment(3_900), enough), None, "it steps down");
        assert_eq!(margin.extended(at(4_000), at(9_000), Moment(4_100), enough), None, "it begins to lead");
        assert_eq!(margin.extended(at(4_000), Deadline::Never, Moment(3_900), enough), None);
    }
}
