//! Keys: ed25519, in the PEM files that `openssl genpkey -algorithm ed25519` and `openssl pkey
//! -pubout` write.

use super::head::SIGNED;
use super::{Package, PackageError, hex};
use ed25519_dalek::pkcs8::spki::Error as PublicError;
use ed25519_dalek::pkcs8::{DecodePrivateKey, DecodePublicKey, Error};
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use sha2::{Digest, Sha256};
use std::fmt;
use zerocopy::IntoBytes;

/// Names a key: the first bytes of the SHA-256 of the public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyId(pub(super) [u8; 8]);

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

/// A key that signatures are checked with.
#[derive(Clone, Debug)]
pub struct Key(VerifyingKey);

impl Key {
    /// From a PEM file ("BEGIN PUBLIC KEY").
    ///
    /// # Errors
    /// A line that says what it is instead.
    pub fn from_pem(text: &str) -> Result<Self, String> {
        VerifyingKey::from_public_key_pem(text).map(Self).map_err(|error| {
            let why = why(text, "PUBLIC KEY", &error.into());
            format!(
                "no public ed25519 key in PEM ({why}); `openssl pkey -in KEY -pubout` makes one"
            )
        })
    }

    /// Its name.
    #[must_use]
    pub fn id(&self) -> KeyId {
        let digest: [u8; 32] = Sha256::digest(self.0.as_bytes()).into();
        let [a, b, c, d, e, f, g, h, ..] = digest;
        KeyId([a, b, c, d, e, f, g, h])
    }
}

/// A key that signs.
pub struct Secret(SigningKey);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "secret of key {}", self.public().id())
    }
}

impl Secret {
    /// From a PEM file ("BEGIN PRIVATE KEY").
    ///
    /// # Errors
    /// A line that says what it is instead.
    pub fn from_pem(text: &str) -> Result<Self, String> {
        SigningKey::from_pkcs8_pem(text).map(Self).map_err(|error| {
            let make = "openssl genpkey -algorithm ed25519 -out KEY";
            let why = why(text, "PRIVATE KEY", &error);
            format!("no private ed25519 key in PEM ({why}); `{make}` makes one")
        })
    }

    /// The key that its signatures are checked with.
    #[must_use]
    pub fn public(&self) -> Key {
        Key(self.0.verifying_key())
    }

    pub(super) fn sign(&self, bytes: &[u8]) -> [u8; 64] {
        self.0.sign(bytes).to_bytes()
    }
}

/// How the first line of a PEM file begins; its label follows.
const BEGIN: &str = "-----BEGIN ";

fn labels(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| line.trim_end().strip_prefix(BEGIN)?.strip_suffix("-----"))
}

/// Is there a private key in this PEM file, of whatever kind?
#[must_use]
pub fn has_private_key(text: &str) -> bool {
    labels(text).any(|label| label.ends_with("PRIVATE KEY"))
}

/// Why a file has not the key that is wanted, one with this label.
fn why(text: &str, wanted: &str, error: &Error) -> String {
    match (labels(text).next(), error) {
        // The library names the number of the kind that is wanted, as if that were not known.
        (_, Error::PublicKey(PublicError::OidUnknown { .. })) => {
            "the file holds a key of another kind".to_owned()
        }
        (Some(label), _) if label != wanted => format!("the file holds: {label}"),
        (_, error) => error.to_string(),
    }
}

/// Keys of which one must have signed an image.
#[derive(Clone, Debug, Default)]
pub struct Trust(pub Vec<Key>);

impl Trust {
    /// Returns the key that has signed the image.
    ///
    /// # Errors
    /// If it is not signed, signed with another key, or changed after it was signed.
    pub fn check(&self, package: &Package) -> Result<KeyId, PackageError> {
        let id = package.signed_by().ok_or(PackageError::Unsigned)?;
        let key = self.0.iter().find(|key| key.id() == id).ok_or_else(|| {
            let ids: Vec<String> = self.0.iter().map(|key| key.id().to_string()).collect();
            PackageError::Stranger { key: id, trusted: ids.join(", ") }
        })?;
        let signature = Signature::from_bytes(&package.head.signature);
        // Strict: no second signature of the same bytes can be made from a first one.
        let checked = key.0.verify_strict(&package.head.as_bytes()[..SIGNED], &signature);
        checked.map(|()| id).map_err(|_| PackageError::Signature(id))
    }
}
