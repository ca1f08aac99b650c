/* What happens before each time that is taken of a function: linked into the libraries of candidates when tuning.
 *
 * In a network, a function finds its threads awake, its input where the function before has just written it, its
 * output in memory that is used over and over, and its weights where the rest of the network has left them, which is
 * mostly beyond the caches that a core has for itself. Here each thread goes through so much other memory that it
 * takes the place of all of that, and input and output come back, before the clock starts.
 *
 * TVM's time evaluator calls such a function by its name in the registry of all functions; it is put there when
 * `edgedeploy_prepare_measuring` is called.
 */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "tvm.h"

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

/* tvm/ffi/c_api.h: the size of TVMFFIObject, TVMFFIByteArray, and functions of the runtime. */
enum { OBJECT_BYTES = 24 };
typedef struct {
  const char* data;
  size_t size;
} Bytes;
extern int TVMFFIFunctionCreate(void* self, Function call, void (*deleter)(void*), void** out);
extern int TVMFFIFunctionSetGlobal(const Bytes* name, void* function, int allow_override);
extern int TVMFFIObjectDecRef(void* object);

enum {
  AWAKE_MICROSECONDS = 2000, /* longer than a thread takes to wake up, unless other programs hold the processors */
  LINE = 32                  /* bytes, of the shortest lines that caches have */
};

static int threads = 1;
/* Memory that takes the place of weights in the caches: so much for each thread, or none. */
static char* other;
static size_t other_bytes;
static atomic_int awake;
static volatile char sink;

static void fetch(const char* data, size_t bytes) {
  for (size_t i = 0; i < bytes; i += LINE) sink = data[i];
}

/* One share for each thread, which ends when all threads have begun theirs. */
static int meet(int share, Group* group, void* data) {
  (void)data;
  atomic_fetch_add(&awake, 1);
  fetch(other + (size_t)share * other_bytes, other_bytes);
  for (int64_t end = microseconds() + AWAKE_MICROSECONDS; atomic_load(&awake) < group->num_task;)
    if (microseconds() > end) break;
  return 0;
}

static void wake_threads(void) {
  atomic_store(&awake, 0);
  if (&__TVMBackendParallelLaunch) {
    __TVMBackendParallelLaunch(meet, NULL, threads);
  } else { /* no function of the library has parallel loops */
    Group alone = {NULL, 1};
    meet(0, &alone, NULL);
  }
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

static void fetch_tensor(const Any* argument) {
  const Tensor* tensor = tensor_of(argument);
  if (tensor) fetch(tensor->data + tensor->byte_offset, bytes_of(tensor));
}

static int before_each(void* self, const Any* arguments, int32_t count, Any* result) {
  (void)self;
  wake_threads();
  if (other_bytes && count > 0) {
    fetch_tensor(&arguments[0]);
    fetch_tensor(&arguments[count - 1]);
  }
  *result = (Any){.type = NONE};
  return 0;
}

/* edgedeploy_prepare_measuring(threads, bytes): after edgedeploy_set_threads. */
__attribute__((visibility("default"))) int __tvm_ffi_edgedeploy_prepare_measuring(void* self, const Any* arguments,
                                                                                  int32_t count, Any* result) {
  (void)self;
  if (count != 2 || arguments[0].type != INTEGER || arguments[1].type != INTEGER) return -1;
  threads = (int)arguments[0].integer;
  other_bytes = (size_t)arguments[1].integer;
  free(other);
  other = malloc(other_bytes * (size_t)threads + 1);
  if (!other) return -1;
  memset(other, 1, other_bytes * (size_t)threads); /* pages of its own */
  static const char text[] = "edgedeploy.before_each";
  const Bytes name = {text, sizeof text - 1};
  void* function = NULL;
  if (TVMFFIFunctionCreate(NULL, before_each, NULL, &function) != 0) return -1;
  const int failed = TVMFFIFunctionSetGlobal(&name, function, 1);
  TVMFFIObjectDecRef(function);
  *result = (Any){.type = NONE};
  return failed;
}
