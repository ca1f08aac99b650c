/* Checks of integers that a network has computed, linked into each network's library: see compile/passes/arithmetic.py.
 *
 * Each function copies a tensor, and raises an InputError where an element cannot be used.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tvm.h"

/* What the network's code gives them: the operator's name, the tensor, its copy, and its numbers of elements and of
 * bytes in each. */
enum { NAME, GIVEN, CHECKED, COUNT, BYTES, SIZES };

/* TVM's runtime fills this in when it loads the library; the network's code may have it too. */
__attribute__((weak, visibility("default"))) void (*__TVMFFIErrorSetRaisedFromCStr)(const char* kind,
                                                                                   const char* message);

static int refuse(const char* message) {
  if (__TVMFFIErrorSetRaisedFromCStr) __TVMFFIErrorSetRaisedFromCStr("InputError", message);
  return -1;
}

/* Divisors of any integer type: an element is zero where all its bytes are. */
int edgedeploy_check_divisors(void* self, const Any* arguments, int32_t count, Any* result) {
  (void)self, (void)count, (void)result;
  const char* given = arguments[GIVEN].pointer;
  const int64_t bytes = arguments[BYTES].integer, size = arguments[COUNT].integer * bytes;
  static const char zero[8];
  for (int64_t i = 0; i < size; i += bytes) {
    if (memcmp(given + i, zero, (size_t)bytes) == 0) {
      char message[128];
      snprintf(message, sizeof message, "integer division by zero in %s", (const char*)arguments[NAME].pointer);
      return refuse(message);
    }
  }
  memcpy(arguments[CHECKED].pointer, given, (size_t)size);
  return 0;
}

/* Indices as int64, which may count from the end; the copy's count from the begin. The arguments from SIZES on are the
 * sizes of the axes that they go through in turn. */
int edgedeploy_check_indices(void* self, const Any* arguments, int32_t count, Any* result) {
  (void)self, (void)result;
  const int64_t* given = arguments[GIVEN].pointer;
  int64_t* checked = arguments[CHECKED].pointer;
  const int64_t length = arguments[COUNT].integer;
  const int32_t axes = count - SIZES;
  for (int64_t i = 0; i < length; i += axes) {
    for (int32_t axis = 0; axis < axes; axis++) {
      const int64_t index = given[i + axis], size = arguments[SIZES + axis].integer;
      if (index < -size || index >= size) {
        char message[160];
        snprintf(message, sizeof message, "index %" PRId64 " in %s is out of bounds for an axis of size %" PRId64, index,
                 (const char*)arguments[NAME].pointer, size);
        return refuse(message);
      }
      checked[i + axis] = index < 0 ? index + size : index;
    }
  }
  return 0;
}
