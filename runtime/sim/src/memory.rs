//! The memory of all members: bytes, bounds, and who may touch what at which time.
//!
//! Links and devices of a real system write to memory behind everybody's back; here every access is
//! checked: by [`crate::check::access`] against all others that are under way, and against the
//! life of the memory. What was freed is poisoned.

use crate::check::access::{Access, Claim, User};

/// A place in a member's memory; the bytes are looked up when somebody touches them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mem {
    /// Whose memory it is; [`LINK`] for a link's own.
    pub owner: u16,
    /// Which buffer.
    pub region: u32,
    /// Byte offset.
    pub at: u64,
}

/// Owner of memory that belongs to a link.
pub const LINK: u16 = u16::MAX;

/// What freed memory holds.
const POISON: u8 = 0xdd;

impl unisono_driver::Memory for Mem {
    fn offset(self, bytes: u64) -> Self {
        Self { at: self.at + bytes, ..self }
    }
}

#[derive(Debug)]
struct Region {
    owner: u16,
    what: String,
    bytes: Vec<u8>,
    /// As memory of a GPU: neither peers nor links reach it.
    private: bool,
    live: bool,
    claims: Vec<Claim>,
}

/// All buffers that there have ever been.
#[derive(Debug, Default)]
pub struct MemoryMap {
    regions: Vec<Region>,
}

impl MemoryMap {
    /// A new buffer.
    pub fn alloc(&mut self, owner: u16, what: String, bytes: Vec<u8>) -> Mem {
        let region = self.regions.len() as u32;
        let (private, claims) = (false, Vec::new());
        self.regions.push(Region { owner, what, bytes, private, live: true, claims });
        Mem { owner, region, at: 0 }
    }

    /// From now on only the owner's device and program reach this buffer.
    pub fn set_private(&mut self, mem: Mem) {
        self.regions[mem.region as usize].private = true;
    }

    /// Do peers and links reach this buffer?
    #[must_use]
    pub fn is_shared(&self, mem: Mem) -> bool {
        !self.regions[mem.region as usize].private
    }

    /// The bytes of a payload that a link copies.
    ///
    /// # Errors
    /// As for [`MemoryMap::read`], or if the buffer is private.
    pub fn read_shared(&self, mem: Mem, len: usize) -> Result<&[u8], String> {
        self.demand_shared(mem)?;
        self.read(mem, len)
    }

    fn demand_shared(&self, mem: Mem) -> Result<(), String> {
        if self.is_shared(mem) {
            return Ok(());
        }
        Err(format!("a link touches {}, which is private", self.regions[mem.region as usize].what))
    }

    /// Frees a buffer and returns what it held.
    ///
    /// # Errors
    /// If somebody still uses it.
    pub fn free(&mut self, mem: Mem) -> Result<Vec<u8>, String> {
        let region = &mut self.regions[mem.region as usize];
        assert!(region.live, "{} is freed twice", region.what);
        if let Some(claim) = region.claims.first() {
            return Err(format!("{} is freed while {claim} goes on", region.what));
        }
        region.live = false;
        let poison = vec![POISON; region.bytes.len()];
        Ok(core::mem::replace(&mut region.bytes, poison))
    }

    /// Does nobody use this buffer at the moment?
    #[must_use]
    pub fn is_idle(&self, mem: Mem) -> bool {
        self.regions[mem.region as usize].claims.is_empty()
    }

    /// The bytes of a live buffer.
    ///
    /// # Errors
    /// If they are out of bounds or have been freed.
    pub fn read(&self, mem: Mem, len: usize) -> Result<&[u8], String> {
        let range = self.range(mem, len)?;
        Ok(&self.regions[mem.region as usize].bytes[range])
    }

    /// Writes without a claim, as the owner's program does (and, after a claim, its device).
    ///
    /// # Errors
    /// As for [`MemoryMap::read`].
    pub fn write(&mut self, mem: Mem, bytes: &[u8]) -> Result<(), String> {
        let range = self.range(mem, bytes.len())?;
        self.regions[mem.region as usize].bytes[range].copy_from_slice(bytes);
        Ok(())
    }

    fn range(&self, mem: Mem, len: usize) -> Result<core::ops::Range<usize>, String> {
        let region = self
            .regions
            .get(mem.region as usize)
            .filter(|region| region.owner == mem.owner)
            .ok_or_else(|| format!("{mem:?} is no memory"))?;
        if !region.live {
            return Err(format!("{} is used after it was freed", region.what));
        }
        let end = mem.at.checked_add(len as u64).filter(|&end| end <= region.bytes.len() as u64);
        let end = end.ok_or_else(|| {
            let (at, size) = (mem.at, region.bytes.len());
            format!("{len} bytes at {at} of {}, which has {size}", region.what)
        })?;
        Ok(mem.at as usize..end as usize)
    }

    /// Somebody is going to read or write these bytes until [`MemoryMap::release`].
    ///
    /// # Errors
    /// If the access is out of bounds, to freed memory, to memory of another member that was not
    /// lent, or in conflict with another one.
    pub fn claim(&mut self, user: User, access: Access, mem: Mem, len: u64) -> Result<(), String> {
        let range = self.range(mem, len as usize)?;
        if matches!(user, User::Lent { .. }) {
            self.demand_shared(mem)?;
        }
        let claim = Claim { user, access, low: range.start as u64, high: range.end as u64 };
        let region = &mut self.regions[mem.region as usize];
        claim.check(region.owner, &region.claims).map_err(|why| {
            let what = &region.what;
            format!("{claim} of {what}, {}..{}: {why}", range.start, range.end)
        })?;
        if len > 0 {
            region.claims.push(claim);
        }
        Ok(())
    }

    /// An access is over; `mems` are the places where it was.
    pub fn release(&mut self, user: User, mem: Mem) {
        let region = &mut self.regions[mem.region as usize];
        region.claims.retain(|claim| !claim.user.is_same(&user));
    }

    /// The receiver of a lent span enters or leaves it.
    pub fn set_entered(&mut self, frame: u64, mem: Mem, on: bool) {
        for claim in &mut self.regions[mem.region as usize].claims {
            if let User::Lent { frame: f, entered, .. } = &mut claim.user
                && *f == frame
            {
                *entered = on;
            }
        }
    }

    /// A link writes what it has received.
    ///
    /// # Errors
    /// As for [`MemoryMap::claim`].
    pub fn put(&mut self, member: u16, mem: Mem, bytes: &[u8]) -> Result<(), String> {
        self.demand_shared(mem)?;
        self.deposit(member, mem, bytes)
    }

    /// A member's program writes its own memory, private or not.
    ///
    /// # Errors
    /// As for [`MemoryMap::claim`].
    pub fn deposit(&mut self, member: u16, mem: Mem, bytes: &[u8]) -> Result<(), String> {
        let user = User::Receipt { member };
        self.claim(user, Access::Write, mem, bytes.len() as u64)?;
        let result = self.write(mem, bytes);
        self.release(user, mem);
        result
    }
}
