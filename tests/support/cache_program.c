/* What the recorder's model of the data caches counts for a list of accesses, for tests. */
#include "caches.h"

/* `accesses` has three numbers each: the instruction, the address, and whether it is a store. */
int count_misses(const uint64_t* sizes, const uint64_t* accesses, uint64_t number, uint64_t instructions,
                 uint64_t* counters) {
  struct caches caches = {0};
  for (int i = 0; i < 3; ++i) {
    caches.levels[i].bytes = sizes[2 * i];
    caches.levels[i].ways = (uint32_t)sizes[2 * i + 1];
  }
  struct access* state = calloc(instructions, sizeof *state);
  if (!state || !caches_make(&caches)) return 1;
  for (uint64_t i = 0; i < number; ++i) {
    const uint64_t* each = accesses + 3 * i;
    caches_access(&caches, &state[each[0]], each[1], each[2] != 0, counters);
  }
  free(state);
  for (int i = 0; i < 3; ++i) free(caches.levels[i].lines);
  return 0;
}
