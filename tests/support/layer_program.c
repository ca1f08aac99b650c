// Calls one compiled function on tensors from files: PROGRAM FILE... The last file is overwritten with the result.

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

// As in dlpack.h and tvm/ffi/c_api.h; the function reads nothing but `data`.
typedef struct {
  void *data;
  int32_t device[2], ndim;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides;
  uint64_t byte_offset;
} Tensor;
typedef struct {
  int32_t type, padding;
  union {
    void *pointer;
    int64_t whole;
  };
} Any;
enum { TENSOR_POINTER = 7 };
typedef struct {
  void *sync_handle;
  int32_t tasks;
} Environment;
typedef int (*Task)(int, Environment *, void *);

// The function calls these through pointers, which TVM's runtime sets when it loads a library.
extern void *__TVMBackendAllocWorkspace __attribute__((weak)), *__TVMBackendFreeWorkspace __attribute__((weak));
extern void *__TVMBackendParallelLaunch __attribute__((weak));
extern int32_t __tvm_ffi_layer(void *self, Any *arguments, int32_t count, Any *result);

static void *allocate(int type, int id, uint64_t size, int code, int bits) {
  (void)type, (void)id, (void)code, (void)bits;
  return aligned_alloc(64, (size + 63) / 64 * 64);
}
static int release(int type, int id, void *memory) {
  (void)type, (void)id;
  free(memory);
  return 0;
}
static int launch(Task task, void *data, int tasks) {
  Environment alone = {0, 1};
  (void)tasks;
  return task(0, &alone, data);
}

int main(int count, char **paths) {
  static Tensor tensors[16];
  Any arguments[16] = {0}, result = {0};
  long size = 0;
  if (&__TVMBackendAllocWorkspace) __TVMBackendAllocWorkspace = (void *)allocate;
  if (&__TVMBackendFreeWorkspace) __TVMBackendFreeWorkspace = (void *)release;
  if (&__TVMBackendParallelLaunch) __TVMBackendParallelLaunch = (void *)launch;
  for (int i = 1; i < count; ++i) {
    FILE *file = fopen(paths[i], "rb");
    fseek(file, 0, SEEK_END);
    size = ftell(file);
    rewind(file);
    tensors[i - 1].data = aligned_alloc(64, (size + 63) / 64 * 64);
    if (fread(tensors[i - 1].data, 1, size, file) != (size_t)size) return 2;
    fclose(file);
    tensors[i - 1].device[0] = 1;
    arguments[i - 1].type = TENSOR_POINTER;
    arguments[i - 1].pointer = &tensors[i - 1];
  }
  if (__tvm_ffi_layer(0, arguments, count - 1, &result)) return 1;
  FILE *file = fopen(paths[count - 1], "wb");
  fwrite(tensors[count - 2].data, 1, size, file);
  return fclose(file);
}
