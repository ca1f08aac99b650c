/* What TVM's runtime and a library that it loads know of each other, as far as the sources here need it: those who link
 * have none of TVM's headers. And the time. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* tvm/runtime/c_backend_api.h: TVMParallelGroupEnv, FTVMParallelLambda, TVMBackendParallelLaunch. The pointer is in
 * libraries that have a function with parallel loops. */
typedef struct {
  void* sync_handle;
  int32_t num_task;
} Group;
typedef int (*Share)(int task_id, Group* group, void* data);
extern int (*__TVMBackendParallelLaunch)(Share share, void* data, int num_task) __attribute__((weak));

/* tvm/ffi/c_api.h: TVMFFIAny, some of its types, and TVMFFISafeCallType. */
typedef struct {
  int32_t type;
  uint32_t padding;
  union {
    int64_t integer;
    void* pointer;
  };
} Any;
enum { NONE = 0, INTEGER = 1, PLAIN_TENSOR = 7, TENSOR_OBJECT = 70 };
typedef int (*Function)(void* self, const Any* arguments, int32_t count, Any* result);

static inline int64_t microseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}
