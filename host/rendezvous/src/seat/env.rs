//! Variables of the environment, and errors that name them.

use crate::error::Error;
use std::collections::HashMap;
use std::str::FromStr;

/// The environment, as far as it is text.
pub(super) struct Env(HashMap<String, String>);

impl Env {
    /// This process's own.
    pub fn of_process() -> Self {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.to_string_lossy().into_owned()))
        };
        Self(std::env::vars_os().filter_map(text).collect())
    }

    #[cfg(test)]
    pub fn of(pairs: &[(&str, &str)]) -> Self {
        Self(pairs.iter().map(|&(n, v)| (n.to_owned(), v.to_owned())).collect())
    }

    /// A variable's value; an empty one counts as not set, as scripts write it.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(|v| v.trim()).filter(|v| !v.is_empty())
    }

    /// Are all of them set?
    pub fn has(&self, names: &[&str]) -> bool {
        names.iter().all(|n| self.get(n).is_some())
    }

    /// A number, if the variable is set.
    pub fn number<T: FromStr>(&self, name: &str) -> Result<Option<T>, Error> {
        let parse = |text: &str| text.parse().map_err(|_| self.wrong(name, "no such number"));
        self.get(name).map(parse).transpose()
    }

    /// A number that has to be there.
    pub fn need<T: FromStr>(&self, name: &str, why: &str) -> Result<T, Error> {
        self.number(name)?.ok_or_else(|| self.wrong(name, why))
    }

    /// An error that names the variable and its value.
    pub fn wrong(&self, name: &str, why: impl Into<String>) -> Error {
        let value = self.get(name).unwrap_or("(not set)").to_owned();
        Error::Variable { name: name.to_owned(), value, why: why.into() }
    }
}
