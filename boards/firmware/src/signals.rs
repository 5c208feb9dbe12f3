//! Pins that show what a member does.

use embedded_hal::digital::{OutputPin, PinState};

/// A status pin for whoever looks at the board, and an attention pin for a host that would rather
/// wait for an edge than poll.
#[derive(Debug)]
pub struct Signals<S, A> {
    status: S,
    attention: A,
    /// What they show; nothing yet.
    shown: Option<(bool, bool)>,
}

impl<S: OutputPin, A: OutputPin> Signals<S, A> {
    /// Shows on these pins.
    #[must_use]
    pub const fn new(status: S, attention: A) -> Self {
        Self { status, attention, shown: None }
    }

    /// Status is high while the board is a member of a group, attention while it has a message for
    /// its host that has not left. Pins are touched only when that changes.
    pub fn show(&mut self, is_member: bool, has_news: bool) {
        if self.shown == Some((is_member, has_news)) {
            return;
        }
        // A pin that fails is tried again at the next change; nothing depends on it.
        let _ = self.status.set_state(PinState::from(is_member));
        let _ = self.attention.set_state(PinState::from(has_news));
        self.shown = Some((is_member, has_news));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::RefCell;
    use core::convert::Infallible;
    use embedded_hal::digital::ErrorType;

    /// Notes its levels.
    struct Pin<'a>(&'a RefCell<Vec<bool>>);

    impl ErrorType for Pin<'_> {
        type Error = Infallible;
    }

    impl OutputPin for Pin<'_> {
        fn set_low(&mut self) -> Result<(), Infallible> {
            self.0.borrow_mut().push(false);
            Ok(())
        }

        fn set_high(&mut self) -> Result<(), Infallible> {
            self.0.borrow_mut().push(true);
            Ok(())
        }
    }

    #[test]
    fn pins_follow_the_member_and_rest_otherwise() {
        let (status, attention) = Default::default();
        let mut signals = Signals::new(Pin(&status), Pin(&attention));
        for (is_member, has_news) in
            [(false, false), (false, false), (true, true), (true, false), (true, false)]
        {
            signals.show(is_member, has_news);
        }
        assert_eq!(*status.borrow(), [false, true, true]);
        assert_eq!(*attention.borrow(), [false, true, false]);
    }
}
