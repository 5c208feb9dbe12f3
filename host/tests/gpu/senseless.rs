//! A Vulkan driver that leaves nearly all properties of its device empty.

use crate::broken::{Place, compiled, manifest};

/// Handles begin with the loader's number; what is not here does nothing.
const DRIVER: &str = r#"
#include <string.h>
typedef void (*call)(void);
static unsigned long instance[2] = {0x01CDC0DE}, device[2] = {0x01CDC0DE};
static int create(void *info, void *memory, void **out) { *out = instance; return 0; }
static int version(unsigned *out) { *out = 1u << 22 | 3u << 12; return 0; }
static int extensions(const char *layer, unsigned *count, void *out) { *count = 0; return 0; }
static int more(void *on, const char *layer, unsigned *count, void *out) { *count = 0; return 0; }
static int devices(void *on, unsigned *count, void **out) {
    if (out && *count) out[0] = device;
    *count = 1;
    return 0;
}
static void properties(void *on, char *out) {
    version((unsigned *)out);
    strcpy(out + 20, "Empty GPU");
}
static void properties2(void *on, char *out) { properties(on, out + 16); }
static void families(void *on, unsigned *count, unsigned *out) { *count = 0; }
static void nothing(void) {}
call vk_icdGetInstanceProcAddr(void *of, const char *name) {
    if (!strcmp(name, "vkCreateInstance")) return (call)create;
    if (!strcmp(name, "vkEnumerateInstanceVersion")) return (call)version;
    if (!strcmp(name, "vkEnumerateInstanceExtensionProperties")) return (call)extensions;
    if (!strcmp(name, "vkEnumerateDeviceExtensionProperties")) return (call)more;
    if (!strcmp(name, "vkEnumeratePhysicalDevices")) return (call)devices;
    if (!strcmp(name, "vkGetPhysicalDeviceProperties")) return (call)properties;
    if (!strncmp(name, "vkGetPhysicalDeviceProperties2", 30)) return (call)properties2;
    if (!strncmp(name, "vkGetPhysicalDeviceQueueFamily", 30)) return (call)families;
    if (!strcmp(name, "vkEnumeratePhysicalDeviceGroups")) return 0;
    return strncmp(name, "vk", 2) ? 0 : nothing;
}
int vk_icdNegotiateLoaderICDInterfaceVersion(unsigned *version) { *version = 3; return 0; }
"#;

/// Its panic is not the user's business: one sentence says whose driver it is.
#[test]
fn a_driver_that_says_nothing_of_its_device() {
    let folder = tempfile::tempdir().expect("a folder");
    let driver = manifest(&compiled(folder.path(), "empty", DRIVER));
    let senseless = "what the driver of 'Empty GPU' says of it makes no sense";
    let beside = Place::vulkan(true, &driver);
    let ended = beside.reduce("cpu,vulkan:0");
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert!(ended.err.contains(senseless) && ended.err.lines().count() == 1, "{}", ended.err);
    let ended = beside.run(&["devices"]);
    assert!(ended.out.contains("vulkan:0 ") && !ended.out.contains("vulkan:1 "), "{}", ended.out);
    assert!(ended.err.contains(senseless) && ended.err.lines().count() == 1, "{}", ended.err);
    let alone = Place::vulkan(false, &driver);
    let (seen, broken) = alone.devices();
    assert!(seen.contains(&"opencl:0".to_owned()) && !seen.contains(&"vulkan:0".to_owned()));
    let [(file, why)] = &broken[..] else { panic!("{broken:?}") };
    assert!(file.ends_with("/broken.json") && why == senseless, "{broken:?}");
    let ended = alone.reduce("cpu,vulkan:0");
    assert_eq!(ended.code, Some(1), "{}", ended.err);
    assert!(ended.err.contains(senseless) && !ended.err.contains("panic"), "{}", ended.err);
    assert_eq!(ended.err.lines().count(), 2, "{}", ended.err);
}
