/* What happens before each time that is taken of a function: linked into the libraries of candidates when tuning.
 *
 * In a network, a function finds its threads awake, its input where the function before has just written it, its
 * output in memory that is used over and over, and its weights where a whole inference has left them, which is mostly
 * out of the caches. Here weights are taken out of the caches, and threads are woken, before the clock starts.
 *
 * TVM's time evaluator calls such a function by its name in the registry of all functions; it is put there when
 * `edgedeploy_prepare_measuring` is called.
 */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* tvm/runtime/c_backend_api.h */
typedef struct {
  void* sync_handle;
  int32_t num_task;
} Group;
typedef int (*Share)(int task_id, Group* group, void* data);
extern int (*__TVMBackendParallelLaunch)(Share share, void* data, int num_task) __attribute__((weak));

/* dlpack/dlpack.h: DLTensor. */
typedef struct {
  char* data;
  int32_t device_type, device_id;
  int32_t ndim;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
} Tensor;

/* tvm/ffi/c_api.h: TVMFFIAny and some of its types, the size of TVMFFIObject, and functions of the runtime. */
typedef struct {
  int32_t type;
  uint32_t padding;
  union {
    int64_t integer;
    void* pointer;
  };
} Any;
enum { NONE = 0, INTEGER = 1, PLAIN_TENSOR = 7, TENSOR_OBJECT = 70, OBJECT_BYTES = 24 };
typedef struct {
  const char* data;
  size_t size;
} Bytes;
typedef int (*Function)(void* self, const Any* arguments, int32_t count, Any* result);
extern int TVMFFIFunctionCreate(void* self, Function call, void (*deleter)(void*), void** out);
extern int TVMFFIFunctionSetGlobal(const Bytes* name, void* function, int allow_override);
extern int TVMFFIObjectDecRef(void* object);

enum {
  AWAKE_MICROSECONDS = 2000, /* longer than a thread takes to wake up, unless other programs hold the processors */
  LARGEST_CACHE = 4 << 20    /* of processors that programs cannot tell to drop a line */
};

static int threads = 1;
static int is_cold;
static atomic_int awake;

static int64_t microseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* One share for each thread, which ends when all threads have begun theirs. */
static int meet(int share, Group* group, void* data) {
  (void)share, (void)data;
  atomic_fetch_add(&awake, 1);
  for (int64_t end = microseconds() + AWAKE_MICROSECONDS; atomic_load(&awake) < group->num_task;)
    if (microseconds() > end) break;
  return 0;
}

static void wake_threads(void) {
  atomic_store(&awake, 0);
  if (&__TVMBackendParallelLaunch) __TVMBackendParallelLaunch(meet, NULL, threads);
}

static const Tensor* tensor_of(const Any* argument) {
  if (argument->type == PLAIN_TENSOR) return argument->pointer;
  if (argument->type == TENSOR_OBJECT) return (const Tensor*)((const char*)argument->pointer + OBJECT_BYTES);
  return NULL;
}

static size_t bytes_of(const Tensor* tensor) {
  size_t bits = (size_t)tensor->bits * tensor->lanes;
  for (int i = 0; i < tensor->ndim; i++) bits *= (size_t)tensor->shape[i];
  return bits / 8;
}

#if defined(__x86_64__) || defined(__aarch64__)

static void drop(const Tensor* tensor) {
  const char* begin = tensor->data + tensor->byte_offset;
  const char* end = begin + bytes_of(tensor);
#if defined(__x86_64__)
  for (uintptr_t line = (uintptr_t)begin & ~(uintptr_t)63; line < (uintptr_t)end; line += 64)
    __builtin_ia32_clflush((const void*)line);
  __builtin_ia32_mfence();
#else
  uint64_t type;
  __asm__ volatile("mrs %0, ctr_el0" : "=r"(type));
  const uintptr_t size = (uintptr_t)4 << (type >> 16 & 15);
  for (uintptr_t line = (uintptr_t)begin & ~(size - 1); line < (uintptr_t)end; line += size)
    __asm__ volatile("dc civac, %0" : : "r"(line) : "memory");
  __asm__ volatile("dsb ish" : : : "memory");
#endif
}

static void drop_weights(const Any* arguments, int count) {
  for (int i = 1; i < count - 1; i++) {
    const Tensor* tensor = tensor_of(&arguments[i]);
    if (tensor) drop(tensor);
  }
}

#else

static volatile char sink;

static void fetch(const Tensor* tensor) {
  const char* data = tensor->data + tensor->byte_offset;
  for (size_t i = 0, end = bytes_of(tensor); i < end; i += 32) sink = data[i];
}

/* Other memory takes the place of all tensors; the input and the output come back. */
static void drop_weights(const Any* arguments, int count) {
  static char* other;
  if (!other) other = malloc(LARGEST_CACHE);
  if (!other) return;
  memset(other, ++sink, LARGEST_CACHE);
  for (int i = 0; i < count; i += count > 1 ? count - 1 : 1) {
    const Tensor* tensor = tensor_of(&arguments[i]);
    if (tensor) fetch(tensor);
  }
}

#endif

static int before_each(void* self, const Any* arguments, int32_t count, Any* result) {
  (void)self;
  if (is_cold) drop_weights(arguments, count);
  wake_threads();
  *result = (Any){.type = NONE};
  return 0;
}

/* edgedeploy_prepare_measuring(threads, cold): after edgedeploy_set_threads. */
__attribute__((visibility("default"))) int __tvm_ffi_edgedeploy_prepare_measuring(void* self, const Any* arguments,
                                                                                  int32_t count, Any* result) {
  (void)self;
  if (count != 2 || arguments[0].type != INTEGER || arguments[1].type != INTEGER) return -1;
  threads = (int)arguments[0].integer;
  is_cold = arguments[1].integer != 0;
  static const char text[] = "edgedeploy.before_each";
  const Bytes name = {text, sizeof text - 1};
  void* function = NULL;
  if (TVMFFIFunctionCreate(NULL, before_each, NULL, &function) != 0) return -1;
  const int failed = TVMFFIFunctionSetGlobal(&name, function, 1);
  TVMFFIObjectDecRef(function);
  *result = (Any){.type = NONE};
  return failed;
}
