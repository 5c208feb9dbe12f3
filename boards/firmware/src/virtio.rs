//! A virtio network card, as smoltcp sees it. Nothing is allocated: queues and frames are lent.

use core::cell::UnsafeCell;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use heapless::Vec;
use smoltcp::phy::{self, Checksum, DeviceCapabilities, Medium};
use smoltcp::time::Instant;
use smoltcp::wire::EthernetAddress;
use virtio_drivers::device::net::VirtIONetRaw;
use virtio_drivers::transport::mmio::{MmioTransport, VirtIOHeader};
use virtio_drivers::transport::{DeviceType, Transport};
use virtio_drivers::{BufferDirection, Hal, PAGE_SIZE, PhysAddr};

/// Frames under way in each direction.
pub const FRAMES: usize = 32;
/// Bytes of a frame of Ethernet without its checksum.
const ETHERNET_FRAME: usize = 1514;
/// Room for a frame and what the card writes before it.
const ROOM: usize = 1536;
/// Pages of both queues.
const PAGES: usize = 4;

/// Memory of the queues. It is handed out once and never taken back: a board has one card and keeps
/// it.
#[repr(C, align(4096))]
struct Pages(UnsafeCell<[[u8; PAGE_SIZE]; PAGES]>);

// SAFETY: only addresses are taken, and each page is handed out once.
unsafe impl Sync for Pages {}

static QUEUES: Pages = Pages(UnsafeCell::new([[0; PAGE_SIZE]; PAGES]));
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// Memory as card and core see it: at the same addresses, and coherent.
#[derive(Debug)]
pub struct Coherent;

// SAFETY: pages are zeroed, aligned, and handed out once; all memory is where the card looks for
// it.
unsafe impl Hal for Coherent {
    fn dma_alloc(pages: usize, _: BufferDirection) -> (PhysAddr, NonNull<u8>) {
        let first = TAKEN.fetch_add(pages, Relaxed);
        let fits = first.checked_add(pages).is_some_and(|end| end <= PAGES);
        let base = QUEUES.0.get().cast::<u8>();
        let start = NonNull::new(base.wrapping_add(first.wrapping_mul(PAGE_SIZE)));
        match start.filter(|_| fits) {
            Some(start) => (start.addr().get() as PhysAddr, start),
            // Address 0 says that there is none.
            None => (0, NonNull::dangling()),
        }
    }

    unsafe fn dma_dealloc(_: PhysAddr, _: NonNull<u8>, _: usize) -> i32 {
        0
    }

    unsafe fn mmio_phys_to_virt(at: PhysAddr, _: usize) -> NonNull<u8> {
        NonNull::new(at as usize as *mut u8).unwrap_or(NonNull::dangling())
    }

    unsafe fn share(bytes: NonNull<[u8]>, _: BufferDirection) -> PhysAddr {
        bytes.addr().get() as PhysAddr
    }

    unsafe fn unshare(_: PhysAddr, _: NonNull<[u8]>, _: BufferDirection) {}
}

/// Where a board has its virtio devices.
#[derive(Clone, Copy, Debug)]
pub struct Slots {
    /// The registers of the first one.
    pub base: usize,
    /// Bytes from one to the next.
    pub stride: usize,
    /// How many there may be.
    pub count: usize,
}

impl Slots {
    /// The registers of the first network card; `None` if there is none.
    ///
    /// # Safety
    /// The slots must be those of the board, mapped as device memory. Call it once: nobody else may
    /// use the card.
    #[must_use]
    pub unsafe fn find_card(&self) -> Option<MmioTransport<'static>> {
        (0..self.count).find_map(|slot| {
            let registers = (self.base + slot * self.stride) as *mut VirtIOHeader;
            // SAFETY: registers of a slot, by the caller's promise.
            let slot = unsafe { MmioTransport::new(NonNull::new(registers)?, self.stride) };
            slot.ok().filter(|slot| slot.device_type() == DeviceType::Network)
        })
    }
}

/// One frame and what the card writes before it.
pub type Frame = [u8; ROOM];
/// Frames of both directions.
pub type Frames = [[Frame; FRAMES]; 2];

/// Frames of one direction, and which of them the card has.
struct Half {
    frames: &'static mut [Frame; FRAMES],
    /// Which frame the card has under this token.
    by_token: [u8; FRAMES],
    /// Frames that it does not have.
    free: Vec<u8, FRAMES>,
}

impl Half {
    fn new(frames: &'static mut [Frame; FRAMES]) -> Self {
        Self { frames, by_token: [0; FRAMES], free: (0..FRAMES as u8).collect() }
    }

    /// A frame that the card does not have, and its number.
    fn take(&mut self) -> Option<(u8, &mut Frame)> {
        let number = self.free.pop()?;
        Some((number, self.frames.get_mut(usize::from(number))?))
    }

    /// The card has taken this frame under `token`, or has not taken it.
    fn gone(&mut self, number: u8, token: Result<u16, virtio_drivers::Error>) {
        match token.map(|token| self.by_token.get_mut(usize::from(token))) {
            Ok(Some(place)) => *place = number,
            // It was taken from there.
            Ok(None) | Err(_) => drop(self.free.push(number)),
        }
    }

    /// The frame that the card has under this token, and its number.
    fn of(&mut self, token: u16) -> Option<(u8, &mut Frame)> {
        let number = *self.by_token.get(usize::from(token))?;
        Some((number, self.frames.get_mut(usize::from(number))?))
    }
}

/// The card.
pub struct Card<T: Transport> {
    net: VirtIONetRaw<Coherent, T, FRAMES>,
    incoming: Half,
    outgoing: Half,
}

impl<T: Transport> Card<T> {
    /// Starts the card; `None` if it does not start. The memory of its queues is there once.
    pub fn start(registers: T, [incoming, outgoing]: &'static mut Frames) -> Option<Self> {
        let mut net = VirtIONetRaw::new(registers).ok()?;
        // It is polled.
        net.disable_interrupts();
        let (incoming, outgoing) = (Half::new(incoming), Half::new(outgoing));
        Some(Self { net, incoming, outgoing })
    }

    /// Its address.
    pub fn address(&self) -> EthernetAddress {
        EthernetAddress(self.net.mac_address())
    }

    /// Lends the card all frames that may come in, and takes back those that have gone out.
    fn tend(&mut self) {
        let Self { net, incoming, outgoing } = self;
        while let Some((number, frame)) = incoming.take() {
            // SAFETY: nobody touches the frame until the card has given it back.
            let token = unsafe { net.receive_begin(frame) };
            let full = token.is_err();
            incoming.gone(number, token);
            if full {
                break;
            }
        }
        while let Some(token) = net.poll_transmit() {
            let Some((number, frame)) = outgoing.of(token) else { return };
            // SAFETY: the frame that went out under this token.
            if unsafe { net.transmit_complete(token, frame) }.is_err() {
                return;
            }
            // It has a place: it was taken from there.
            let _ = outgoing.free.push(number);
        }
    }
}

/// A frame that has come in. It goes back to the card before the next one is taken.
#[derive(Debug)]
pub struct Received<'a>(&'a [u8]);

impl phy::RxToken for Received<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(self.0)
    }
}

/// Room for a frame to send.
pub struct Sending<'a, T: Transport> {
    net: &'a mut VirtIONetRaw<Coherent, T, FRAMES>,
    outgoing: &'a mut Half,
}

impl<T: Transport> phy::TxToken for Sending<'_, T> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let Self { net, outgoing } = self;
        let Some((number, frame)) = outgoing.take() else {
            // There is room whenever this token is given; a frame without is lost.
            return f(&mut [0; ROOM][..len.min(ROOM)]);
        };
        let start = net.fill_buffer_header(frame).unwrap_or(0);
        let end = (start + len).min(ROOM);
        let result = f(frame.get_mut(start..end).unwrap_or_default());
        // SAFETY: nobody touches the frame until the card has given it back.
        let token = unsafe { net.transmit_begin(frame.get(..end).unwrap_or_default()) };
        outgoing.gone(number, token);
        result
    }
}

impl<T: Transport> phy::Device for Card<T> {
    type RxToken<'a>
        = Received<'a>
    where
        Self: 'a;
    type TxToken<'a>
        = Sending<'a, T>
    where
        Self: 'a;

    fn receive(&mut self, _: Instant) -> Option<(Received<'_>, Sending<'_, T>)> {
        self.tend();
        let Self { net, incoming, outgoing } = self;
        if outgoing.free.is_empty() || !net.can_send() {
            return None;
        }
        let token = net.poll_receive()?;
        let (number, frame) = incoming.of(token)?;
        // SAFETY: the frame that was lent under this token.
        let received = unsafe { net.receive_complete(token, frame) };
        // It has a place, and stays untouched until the next call of `tend`.
        let _ = incoming.free.push(number);
        let (head, len) = received.ok()?;
        let frame = incoming.frames.get(usize::from(number))?.get(head..head + len)?;
        Some((Received(frame), Sending { net, outgoing }))
    }

    fn transmit(&mut self, _: Instant) -> Option<Sending<'_, T>> {
        self.tend();
        let Self { net, outgoing, .. } = self;
        (!outgoing.free.is_empty() && net.can_send()).then_some(Sending { net, outgoing })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = ETHERNET_FRAME;
        // Packets carry a CRC32C of their own, and UDP over IPv4 may go without (RFC 768).
        capabilities.checksum.udp = Checksum::None;
        capabilities
    }
}
