//! Each launcher starts ranks for real.
