//! The names in a header, each of which must occur once.
//!
//! What reads the header as a map keeps the last entry of a name only, and which one a reader of
//! the output would keep is anybody's guess.

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use std::collections::BTreeSet;
use std::fmt;

/// The first name that a JSON object has a second time.
pub struct Twice(pub Option<String>);

impl<'de> Deserialize<'de> for Twice {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(Names).map(Self)
    }
}

struct Names;

impl<'de> Visitor<'de> for Names {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut seen, mut twice) = (BTreeSet::new(), None);
        // To the end, whatever is found: the reader does not take half an object.
        while let Some((name, IgnoredAny)) = map.next_entry::<String, _>()? {
            if let Some(name) = seen.replace(name) {
                twice.get_or_insert(name);
            }
        }
        Ok(twice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_name_that_comes_again_is_found() {
        let twice = |text: &str| serde_json::from_str::<Twice>(text).map(|twice| twice.0).ok();
        assert_eq!(twice("{}"), Some(None));
        assert_eq!(twice(r#"{"a": {"b": 1}, "b": {"a": [2]}}"#), Some(None));
        assert_eq!(twice(r#"{"a": 1, "b": 2, "b": 3, "a": 4}"#), Some(Some("b".into())));
        // An escape is another way to write the same name.
        assert_eq!(twice(r#"{"a": 1, "\u0061": 1}"#), Some(Some("a".into())));
        assert_eq!(twice("[]"), None);
        assert_eq!(twice(r#"{"a": 1,}"#), None);
    }
}
