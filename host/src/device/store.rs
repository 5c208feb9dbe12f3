//! Open devices and their memory, whatever the API: everything apart from the data path.

use super::any::AnyDevice;
use super::catalog::{card_of, usable};
use super::spec::DeviceSpec;
use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError, Weak};
#[cfg(feature = "opencl")]
use unisono_device_opencl::OpenCl;
#[cfg(feature = "vulkan")]
use unisono_device_vulkan::VulkanContext;
use unisono_driver::HostPtr;
use unisono_gpu::{Api, Card, CardType, Context, Gpu, GpuError, Memory, Options, Place};

/// Something that is only kept so that it is dropped later.
pub(crate) type Kept = Box<dyn Any + Send + Sync>;

/// Memory of a device.
pub(crate) struct Piece {
    pub start: HostPtr,
    pub shared: bool,
    pub kept: Kept,
}

/// The memory of an open device.
pub(crate) trait Store: Send + Sync {
    /// What the device is.
    fn card(&self) -> &Card;

    /// A queue of its own for one member.
    fn device(&self) -> Result<AnyDevice, GpuError>;

    fn alloc(&self, bytes: usize, place: Place) -> Result<Piece, GpuError>;

    /// Lets the device reach memory of the host where it is; `None` if that is not possible, and
    /// the memory is copied when it is used.
    ///
    /// # Safety
    /// The memory stays allocated until what is returned has been dropped.
    unsafe fn register(&self, start: HostPtr, bytes: usize) -> Option<Kept>;

    /// # Safety
    /// There are so many bytes at `to`, and nobody else uses them meanwhile.
    unsafe fn write(&self, to: HostPtr, from: &[u8]) -> Result<(), GpuError>;

    /// # Safety
    /// There are so many bytes at `from`, and nobody writes them meanwhile.
    unsafe fn read(&self, from: HostPtr, to: &mut [u8]) -> Result<(), GpuError>;

    /// For what only one API has.
    #[cfg(any(feature = "vulkan", feature = "opencl"))]
    fn as_any(&self) -> &dyn Any;
}

impl<C: Context> Store for Arc<Memory<C>>
where
    AnyDevice: From<Gpu<C>>,
{
    fn card(&self) -> &Card {
        self.context().card()
    }

    fn device(&self) -> Result<AnyDevice, GpuError> {
        Gpu::open(self, &Options::default()).map(Into::into)
    }

    fn alloc(&self, bytes: usize, place: Place) -> Result<Piece, GpuError> {
        let made = Memory::alloc(self, bytes, place)?;
        Ok(Piece { start: made.mem(), shared: made.is_shared(), kept: Box::new(made) })
    }

    unsafe fn register(&self, start: HostPtr, bytes: usize) -> Option<Kept> {
        if !self.can_register() || bytes == 0 {
            return None;
        }
        // SAFETY: the caller's promise.
        match unsafe { Memory::register(self, start, bytes) } {
            Ok(registration) => Some(Box::new(registration)),
            Err(error) => {
                tracing::debug!("memory is copied when it is used: {error}");
                None
            }
        }
    }

    unsafe fn write(&self, to: HostPtr, from: &[u8]) -> Result<(), GpuError> {
        // SAFETY: the caller's promise.
        unsafe { Memory::write(self, to, from) }
    }

    unsafe fn read(&self, from: HostPtr, to: &mut [u8]) -> Result<(), GpuError> {
        // SAFETY: the caller's promise.
        unsafe { Memory::read(self, from, to) }
    }

    #[cfg(any(feature = "vulkan", feature = "opencl"))]
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A device that has been opened, and stays open while this is kept: groups that use it meanwhile
/// find it ready, with its kernels compiled and its arithmetic tested.
#[derive(Clone)]
pub struct Opened(pub(crate) Arc<dyn Store>);

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Opened").field(&self.card().name).finish()
    }
}

/// A device, by its place in an API's list, while somebody has it open.
type Known = (Api, usize, Weak<dyn Store>);

static OPEN: Mutex<Vec<Known>> = Mutex::new(Vec::new());

impl Opened {
    /// Opens a device; `None` for the CPU and for boards.
    ///
    /// # Errors
    /// [`GpuError`], in the words of loaders and drivers.
    pub fn open(spec: &DeviceSpec) -> Result<Option<Self>, GpuError> {
        card_of(spec)?.map(|card| Self::of(&card)).transpose()
    }

    /// Opens the device with this card.
    pub(crate) fn of(card: &Card) -> Result<Self, GpuError> {
        usable(card)?;
        let (api, index) = (card.api, card.index);
        // Held while a device is opened: two threads that want the same one share it.
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|(.., store)| store.strong_count() > 0);
        let known = open.iter().find(|(a, i, _)| (*a, *i) == (api, index));
        if let Some(store) = known.and_then(|(.., store)| store.upgrade()) {
            return Ok(Self(store));
        }
        let store = open_card(card)?;
        open.push((api, index, Arc::downgrade(&store)));
        Ok(Self(store))
    }

    /// A Vulkan device that the caller computes with; its buffers can be tensors
    /// ([`Group::adopt_vulkan`](crate::Group::adopt_vulkan)).
    #[cfg(feature = "vulkan")]
    #[must_use]
    pub fn vulkan(context: Arc<VulkanContext>) -> Self {
        Self(Arc::new(Memory::new(context)))
    }

    /// An OpenCL device that the caller computes with; its buffers can be tensors
    /// ([`Group::adopt_opencl`](crate::Group::adopt_opencl)).
    #[cfg(feature = "opencl")]
    #[must_use]
    pub fn opencl(context: Arc<OpenCl>) -> Self {
        Self(Arc::new(Memory::new(context)))
    }

    /// What the device is.
    #[must_use]
    pub fn card(&self) -> &Card {
        self.0.card()
    }

    /// Is it software on the CPU?
    pub(crate) fn is_software(&self) -> bool {
        self.card().kind == CardType::Software
    }

    /// Opens a queue, which tests the device's arithmetic, and returns what it is with that.
    ///
    /// # Errors
    /// [`GpuError::SelfTest`], or what the driver says.
    pub fn tested(&self) -> Result<Card, GpuError> {
        match self.0.device()? {
            #[cfg(feature = "vulkan")]
            AnyDevice::Vulkan(gpu) => Ok(gpu.card().clone()),
            #[cfg(feature = "opencl")]
            AnyDevice::OpenCl(gpu) => Ok(gpu.card().clone()),
            _ => Ok(self.card().clone()),
        }
    }

    /// Is it the same open device?
    pub(crate) fn is(&self, other: &Self) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.0), Arc::as_ptr(&other.0))
    }
}

fn open_card(card: &Card) -> Result<Arc<dyn Store>, GpuError> {
    match card.api {
        #[cfg(feature = "vulkan")]
        Api::Vulkan => {
            let options = unisono_device_vulkan::Options::default();
            Ok(Opened::vulkan(VulkanContext::open(card.index, &options)?).0)
        }
        #[cfg(feature = "opencl")]
        Api::OpenCl => {
            let options = unisono_device_opencl::Options::default();
            Ok(Opened::opencl(OpenCl::open(card.index, &options)?).0)
        }
        // There are no cards of an API that this build is without.
        #[cfg(not(all(feature = "vulkan", feature = "opencl")))]
        api => Err(super::catalog::without(api)),
    }
}
