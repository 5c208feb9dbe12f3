//! What all processes of a group know and nobody else does.

use crate::error::Error;
use hmac::{Hmac, Mac};
use sha2::Sha256;
use std::fmt;
use std::fmt::Write as _;
use std::path::Path;

/// Bytes of a proof, a nonce and a session key.
pub(crate) const TAG: usize = 32;

/// Shorter ones can be guessed from one proof that was listened to.
const SHORTEST: usize = 16;

/// Holds the secret itself.
const VARIABLE: &str = "UNISONO_SECRET";
/// Names a file that holds it.
const FILE_VARIABLE: &str = "UNISONO_SECRET_FILE";

/// A shared secret; never shown, never sent.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// From UNISONO_SECRET, or from the file that UNISONO_SECRET_FILE names.
    ///
    /// # Errors
    /// If there is one that is too short, or a file that cannot be read.
    pub fn from_env() -> Result<Option<Self>, Error> {
        if let Some(text) = std::env::var_os(VARIABLE) {
            return Self::new(text.as_encoded_bytes()).map(Some);
        }
        std::env::var_os(FILE_VARIABLE).map(|file| Self::from_file(Path::new(&file))).transpose()
    }

    /// From a file; white space at both ends does not count.
    ///
    /// # Errors
    /// If it cannot be read or holds too little.
    pub fn from_file(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read(path);
        Self::new(&text.map_err(Error::io(format!("reading the secret in {}", path.display())))?)
    }

    /// From its bytes; white space at both ends does not count.
    ///
    /// # Errors
    /// If they are fewer than 16.
    pub fn new(bytes: &[u8]) -> Result<Self, Error> {
        let bytes = bytes.trim_ascii();
        if bytes.len() < SHORTEST {
            return Err(Error::Secret(format!(
                "the shared secret has {} B and could be guessed; take at least {SHORTEST}, \
                 for example from `openssl rand -hex 32`",
                bytes.len()
            )));
        }
        Ok(Self(bytes.to_vec()))
    }

    /// A new one of 256 random bits.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn generate() -> Result<Self, Error> {
        Ok(Self(hex(&random()?).into_bytes()))
    }

    /// For UNISONO_SECRET of a child, and for nothing else.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// What proofs are made with.
#[derive(Clone)]
pub(crate) struct Key(Vec<u8>);

impl Key {
    /// Of a group's secret. Without one proofs only show that both sides mean the same.
    pub fn new(secret: Option<&Secret>) -> Self {
        Self(secret.map_or(Vec::new(), |s| s.0.clone()))
    }

    /// For one session of the group.
    pub fn session(&self, nonce: &[u8; TAG]) -> Self {
        Self(self.proof(&[b"session", nonce]).to_vec())
    }

    /// A proof of knowing the key, bound to `parts`.
    pub fn proof(&self, parts: &[&[u8]]) -> [u8; TAG] {
        self.mac(parts).finalize().into_bytes().into()
    }

    /// Is `proof` one of `parts`? Takes the same time whatever it is.
    pub fn accepts(&self, parts: &[&[u8]], proof: &[u8; TAG]) -> bool {
        self.mac(parts).verify_slice(proof).is_ok()
    }

    fn mac(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        // Unused: HMAC takes keys of any length.
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.0) else { unreachable!() };
        for part in parts {
            // With their lengths, so that no bytes can move from one part into the next.
            mac.update(&(part.len() as u64).to_le_bytes());
            mac.update(part);
        }
        mac
    }
}

/// Random bytes.
pub(crate) fn random() -> Result<[u8; TAG], Error> {
    let mut bytes = [0; TAG];
    let got = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    match got {
        Ok(TAG) => Ok(bytes),
        Ok(_) => Err(Error::Secret("the system gave too few random bytes".into())),
        Err(errno) => Err(Error::io("random numbers")(errno.into())),
    }
}

/// In hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_secrets_are_refused_and_none_is_shown() {
        assert!(Secret::new(b" 123456789012345 \n").is_err());
        let secret = Secret::new(b" 1234567890123456\n").unwrap();
        assert_eq!(secret.expose(), b"1234567890123456");
        assert_eq!(format!("{secret:?}"), "Secret(..)");
        let (one, other) = (Secret::generate().unwrap(), Secret::generate().unwrap());
        assert!(one != other && one.expose().len() == 64);
    }

    #[test]
    fn proofs_are_hmac_sha256_of_parts_with_lengths() {
        let key = Key(b"key".to_vec());
        let proof = key.proof(&[b"ab", b"c"]);
        assert!(key.accepts(&[b"ab", b"c"], &proof));
        assert!(!key.accepts(&[b"a", b"bc"], &proof));
        assert!(!Key(b"kez".to_vec()).accepts(&[b"ab", b"c"], &proof));
    }
}
