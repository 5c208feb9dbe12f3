//! Brings a firmware image to a board.
//!
//! A [`Package`] is an image with a header: which board it is for, which messages it speaks, its
//! SHA-256, and optionally an ed25519 signature. [`Package::parse`] believes nothing that it reads.
//!
//! A [`Loader`] knows one way into a device and only *plans*: it turns a package into [`Step`]s.
//! What carries them out, [`Plan::run`], is the same for all loaders, so what a dry run shows is
//! what is done. A new loader is a new file in `loaders`, and a line in the list there.
//!
//! All paths of devices are below a [`World`], which tests replace with a folder.

mod error;
mod loaders;
mod package;
mod plan;
mod program;
mod run;
mod world;

pub use error::{Failure, LoadError};
pub use loaders::{LOADERS, Loader, Way, loader};
pub use package::{
    Elf, HEADER_BYTES, Key, KeyId, Kind, PAYLOAD_MAX, Package, PackageError, Secret, Trust,
    Version, has_private_key,
};
pub use plan::{Act, Arg, Device, Plan, Step};
pub use run::{Quiet, Watch};
pub use world::World;
