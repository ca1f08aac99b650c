// Calls one compiled function on tensors from files: PROGRAM LIBRARY FUNCTION FILE... Files are overwritten with what
// the function leaves in its tensors.

#include <dlfcn.h>
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

typedef int32_t Function(void *self, Any *arguments, int32_t count, Any *result);

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

// The function calls these through pointers, which TVM's runtime sets when it loads a library.
static void provide(void *library, const char *name, void *function) {
  void **pointer = dlsym(library, name);
  if (pointer) *pointer = function;
}

int main(int count, char **words) {
  enum { MOST = 64, BEFORE_FILES = 3 };
  static Tensor tensors[MOST];
  static long sizes[MOST];
  static Any arguments[MOST], result;
  char **paths = words + BEFORE_FILES;
  count -= BEFORE_FILES;
  if (count < 0 || count > MOST) return 3;
  void *library = dlopen(words[1], RTLD_NOW);
  Function *function = library ? (Function *)dlsym(library, words[2]) : 0;
  if (!function) {
    fprintf(stderr, "%s\n", dlerror());
    return 4;
  }
  provide(library, "__TVMBackendAllocWorkspace", (void *)allocate);
  provide(library, "__TVMBackendFreeWorkspace", (void *)release);
  provide(library, "__TVMBackendParallelLaunch", (void *)launch);
  for (int i = 0; i < count; ++i) {
    FILE *file = fopen(paths[i], "rb");
    fseek(file, 0, SEEK_END);
    sizes[i] = ftell(file);
    rewind(file);
    tensors[i].data = aligned_alloc(64, (sizes[i] + 63) / 64 * 64);
    if (fread(tensors[i].data, 1, sizes[i], file) != (size_t)sizes[i]) return 2;
    fclose(file);
    tensors[i].device[0] = 1;
    arguments[i].type = TENSOR_POINTER;
    arguments[i].pointer = &tensors[i];
  }
  if (function(0, arguments, count, &result)) return 1;
  for (int i = 0; i < count; ++i) {
    FILE *file = fopen(paths[i], "wb");
    fwrite(tensors[i].data, 1, sizes[i], file);
    if (fclose(file)) return 2;
  }
  return 0;
}
