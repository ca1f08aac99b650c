// Lists the OpenCL platforms and devices of the machine that it runs on: lines of fields that tabs separate, each
// written at once, since a driver may crash. Exit code 3: there is no libOpenCL; 4: it has no platforms.
//
// Types and numbers are those of the Khronos Group's CL/cl.h, which a machine need not have.

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { MOST = 16, LONGEST = 1024, NO_LIBRARY = 3, NO_PLATFORMS = 4 };

enum {
  PLATFORM_VERSION = 0x0901,
  PLATFORM_NAME = 0x0902,
  DEVICE_TYPE = 0x1000,
  DEVICE_COMPUTE_UNITS = 0x1002,
  DEVICE_DIMENSIONS = 0x1003,
  DEVICE_GROUP_SIZE = 0x1004,
  DEVICE_ITEM_SIZES = 0x1005,
  DEVICE_GLOBAL_MEMORY = 0x101F,
  DEVICE_LOCAL_MEMORY = 0x1023,
  DEVICE_AVAILABLE = 0x1027,
  DEVICE_COMPILER = 0x1028,
  DEVICE_NAME = 0x102B,
  DEVICE_DRIVER = 0x102D,
  DEVICE_VERSION = 0x102F,
  DEVICE_EXTENSIONS = 0x1030,
  DEVICE_FLOAT_WIDTH = 0x103A
};

static const uint64_t kAllDevices = 0xFFFFFFFF;

typedef int32_t GetPlatforms(uint32_t, void**, uint32_t*);
typedef int32_t GetDevices(void*, uint64_t, uint32_t, void**, uint32_t*);
typedef int32_t GetInfo(void*, uint32_t, size_t, void*, size_t*);

static GetInfo* device_info;

// One text; what would break the line becomes a blank.
static void print_text(GetInfo* info, void* object, uint32_t what) {
  char text[LONGEST] = "";
  if (info(object, what, sizeof text - 1, text, NULL) != 0) text[0] = 0;
  for (char* each = text; *each; ++each) {
    if (*each == '\t' || *each == '\n' || *each == '\r') *each = ' ';
  }
  printf("\t%s", text);
}

// One number, of as many bytes as the driver gives: 4 or 8 on little-endian machines.
static uint64_t number(void* device, uint32_t what) {
  uint64_t value = 0;
  return device_info(device, what, sizeof value, &value, NULL) == 0 ? value : 0;
}

static int has_half(void* device) {
  static char extensions[1 << 16];
  if (device_info(device, DEVICE_EXTENSIONS, sizeof extensions - 1, extensions, NULL) != 0) return 0;
  return strstr(extensions, "cl_khr_fp16") != NULL;
}

static void print_device(void* device) {
  size_t sizes[MOST] = {0};
  const uint64_t dimensions = number(device, DEVICE_DIMENSIONS);
  device_info(device, DEVICE_ITEM_SIZES, sizeof sizes, sizes, NULL);
  printf("device");
  print_text(device_info, device, DEVICE_NAME);
  print_text(device_info, device, DEVICE_VERSION);
  print_text(device_info, device, DEVICE_DRIVER);
  const uint32_t numbers[] = {DEVICE_TYPE,      DEVICE_COMPUTE_UNITS, DEVICE_GLOBAL_MEMORY, DEVICE_LOCAL_MEMORY,
                              DEVICE_AVAILABLE, DEVICE_COMPILER,      DEVICE_FLOAT_WIDTH,   DEVICE_GROUP_SIZE};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; ++i) {
    printf("\t%llu", (unsigned long long)number(device, numbers[i]));
  }
  printf("\t%d", has_half(device));
  for (uint64_t i = 0; i < dimensions && i < MOST; ++i) printf("\t%zu", sizes[i]);
  printf("\n");
}

int main(void) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  void* library = dlopen("libOpenCL.so.1", RTLD_NOW);
  if (!library) library = dlopen("libOpenCL.so", RTLD_NOW);
  if (!library) return fprintf(stderr, "%s\n", dlerror()), NO_LIBRARY;
  GetPlatforms* get_platforms = (GetPlatforms*)dlsym(library, "clGetPlatformIDs");
  GetInfo* platform_info = (GetInfo*)dlsym(library, "clGetPlatformInfo");
  GetDevices* get_devices = (GetDevices*)dlsym(library, "clGetDeviceIDs");
  device_info = (GetInfo*)dlsym(library, "clGetDeviceInfo");
  if (!get_platforms || !platform_info || !get_devices || !device_info) {
    return fprintf(stderr, "libOpenCL lacks functions\n"), NO_LIBRARY;
  }
  void* platforms[MOST];
  uint32_t platform_count = 0;
  const int32_t code = get_platforms(MOST, platforms, &platform_count);
  if (code != 0 || platform_count == 0) return fprintf(stderr, "clGetPlatformIDs says %d\n", code), NO_PLATFORMS;
  for (uint32_t i = 0; i < platform_count && i < MOST; ++i) {
    printf("platform");
    print_text(platform_info, platforms[i], PLATFORM_NAME);
    print_text(platform_info, platforms[i], PLATFORM_VERSION);
    printf("\n");
    void* devices[MOST];
    uint32_t device_count = 0;
    if (get_devices(platforms[i], kAllDevices, MOST, devices, &device_count) != 0) continue;  // it has none
    for (uint32_t j = 0; j < device_count && j < MOST; ++j) print_device(devices[j]);
  }
  return 0;
}
