//! Pins between a member and its host, or whoever looks at the board.

use embedded_hal::digital::{InputPin, OutputPin, PinState, StatefulOutputPin};

/// A status pin for whoever looks at the board, and an attention pin for a host that would rather
/// wait for an edge than poll.
#[derive(Debug)]
pub struct Signals<S, A> {
    status: S,
    attention: A,
    /// What the status pin shows; nothing yet.
    shown: Option<bool>,
}

impl<S: OutputPin, A: StatefulOutputPin> Signals<S, A> {
    /// Shows on these pins.
    #[must_use]
    pub const fn new(status: S, attention: A) -> Self {
        Self { status, attention, shown: None }
    }

    /// Status is high while the board is a member of a group, attention while it has something for
    /// its host: `has_news` is told whether it is high, as a line may raise it by itself
    /// (`link_window`'s `PinBell`). Pins are touched only when they change.
    pub fn show(&mut self, is_member: bool, has_news: impl FnOnce(bool) -> bool) {
        // A pin that fails is tried again at the next change; nothing depends on it.
        if self.shown != Some(is_member) {
            let _ = self.status.set_state(PinState::from(is_member));
            self.shown = Some(is_member);
        }
        let is_high = self.attention.is_set_high().unwrap_or(false);
        let has_news = has_news(is_high);
        if has_news != is_high {
            let _ = self.attention.set_state(PinState::from(has_news));
        }
    }
}

/// A pin that the host may raise for a while, to say that there is something for the board.
#[derive(Debug)]
pub struct Doorbell<P> {
    pin: P,
    was_high: bool,
}

impl<P: InputPin> Doorbell<P> {
    /// Listens to this pin.
    #[must_use]
    pub const fn new(pin: P) -> Self {
        Self { pin, was_high: false }
    }

    /// Was it rung since the last look? A pin that fails was not.
    pub fn is_rung(&mut self) -> bool {
        let is_high = self.pin.is_high().unwrap_or(false);
        !core::mem::replace(&mut self.was_high, is_high) && is_high
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::RefCell;
    use core::convert::Infallible;
    use embedded_hal::digital::ErrorType;

    /// Notes its levels, the present one last.
    #[derive(Clone, Copy)]
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

    impl StatefulOutputPin for Pin<'_> {
        fn is_set_high(&mut self) -> Result<bool, Infallible> {
            Ok(self.0.borrow().last() == Some(&true))
        }

        fn is_set_low(&mut self) -> Result<bool, Infallible> {
            self.is_set_high().map(|is_high| !is_high)
        }
    }

    impl InputPin for Pin<'_> {
        fn is_high(&mut self) -> Result<bool, Infallible> {
            self.is_set_high()
        }

        fn is_low(&mut self) -> Result<bool, Infallible> {
            self.is_set_low()
        }
    }

    #[test]
    fn pins_follow_the_member_and_rest_otherwise() {
        let (status, attention) = Default::default();
        let mut signals = Signals::new(Pin(&status), Pin(&attention));
        for (is_member, has_news) in
            [(false, false), (false, false), (true, true), (true, false), (true, false)]
        {
            signals.show(is_member, |_| has_news);
        }
        assert_eq!(*status.borrow(), [false, true]);
        assert_eq!(*attention.borrow(), [true, false]);
    }

    /// What was raised elsewhere stays until there is no news any more.
    #[test]
    fn attention_that_a_line_has_raised_is_lowered() {
        let (status, attention) = Default::default();
        let mut signals = Signals::new(Pin(&status), Pin(&attention));
        Pin(&attention).set_high().expect("it works");
        signals.show(false, |is_high| is_high);
        assert_eq!(*attention.borrow(), [true]);
        signals.show(false, |_| false);
        signals.show(false, |is_high| is_high);
        assert_eq!(*attention.borrow(), [true, false]);
    }

    #[test]
    fn a_doorbell_counts_once_however_long_it_is_high() {
        let level = Default::default();
        let mut doorbell = Doorbell::new(Pin(&level));
        let rung = [false, true, true, false, true].map(|is_high| {
            level.borrow_mut().push(is_high);
            doorbell.is_rung()
        });
        assert_eq!(rung, [false, true, false, false, true]);
    }
}
