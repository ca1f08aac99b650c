/*
 * A model of a core's data caches: up to three levels of 64-byte lines, least recently used goes first, addresses are
 * the program's own. What the first level gives up and was written to goes to the second; what the last gives up, to
 * memory.
 *
 * A miss is foreseen if its line is next to one that was missed lately, or if the instruction misses at a steady
 * distance: a prefetcher then has brought the line, or most of the way. Otherwise it is random.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define LINE 64
#define DIRTY (1ull << 63)
#define STREAMS 16        /* lines that were missed lately, of any instruction */
#define LONGEST_STRIDE 64 /* in lines, of an instruction that misses at a steady distance */

/* What is counted: for each level below the first, lines of loads that were foreseen, of loads that were not, and of
 * stores; and lines written to memory. */
enum counter {
  L2_FORESEEN,
  L2_RANDOM,
  L2_STORE,
  L3_FORESEEN,
  L3_RANDOM,
  L3_STORE,
  MEMORY_FORESEEN,
  MEMORY_RANDOM,
  MEMORY_STORE,
  WRITTEN_BACK,
  COUNTERS
};

struct cache {
  uint64_t bytes; /* 0: there is no such level */
  uint32_t ways, sets;
  uint64_t* lines; /* sets x ways, the most recent first: line + 1, 0 is empty; DIRTY if it was written to */
};

struct caches {
  struct cache levels[3];
  uint64_t streams[STREAMS];
  uint32_t oldest;
  uint64_t recent; /* the line of the last access, which is the most recent of its set */
};

/* The misses of one instruction. */
struct access {
  uint64_t last;  /* the line of the last one */
  int64_t stride; /* between the last two, in lines */
};

static inline bool caches_make(struct caches* caches) {
  for (int i = 0; i < 3; ++i) {
    struct cache* cache = &caches->levels[i];
    if (!cache->bytes) continue;
    cache->sets = cache->ways ? (uint32_t)(cache->bytes / LINE / cache->ways) : 0;
    if (!cache->sets) return false;
    cache->lines = calloc((size_t)cache->sets * cache->ways, sizeof *cache->lines);
    if (!cache->lines) return false;
  }
  caches->recent = UINT64_MAX;
  return caches->levels[0].bytes != 0;
}

/* Whether `line` is there; it is the most recent one afterwards. `gone` is what had to go for it, 0 if nothing. */
static inline bool cache_take(struct cache* cache, uint64_t line, uint64_t dirty, uint64_t* gone) {
  uint64_t* set = cache->lines + (size_t)(line % cache->sets) * cache->ways;
  uint64_t entry = line + 1;
  uint32_t way = 0;
  *gone = 0;
  while (way < cache->ways && (set[way] & ~DIRTY) != entry) ++way;
  const bool hit = way < cache->ways;
  if (hit) {
    entry = set[way];
  } else {
    *gone = set[--way];
  }
  memmove(set + 1, set, way * sizeof *set);
  set[0] = entry | dirty;
  return hit;
}

static inline bool caches_foresee(struct caches* caches, struct access* access, uint64_t line) {
  const int64_t stride = (int64_t)(line - access->last);
  const bool steady = access->last && stride == access->stride && stride > -LONGEST_STRIDE && stride < LONGEST_STRIDE;
  access->stride = stride;
  access->last = line;
  for (uint32_t i = 0; i < STREAMS; ++i) {
    if (caches->streams[i] + 1 == line || caches->streams[i] == line + 1) {
      caches->streams[i] = line;
      return true;
    }
  }
  caches->streams[caches->oldest] = line;
  caches->oldest = (caches->oldest + 1) % STREAMS;
  return steady;
}

/* One access of `instruction`; `counters` has its misses added. */
static inline void caches_access(struct caches* caches, struct access* instruction, uint64_t address, bool store,
                                 uint64_t* counters) {
  struct cache *l1 = &caches->levels[0], *l2 = &caches->levels[1], *l3 = &caches->levels[2];
  const uint64_t line = address / LINE;
  if (line == caches->recent && !store) return;
  caches->recent = line;
  uint64_t gone;
  if (cache_take(l1, line, store ? DIRTY : 0, &gone)) return;
  if (gone & DIRTY) {
    const uint64_t written = (gone & ~DIRTY) - 1;
    gone = DIRTY;
    if (l2->bytes) cache_take(l2, written, DIRTY, &gone);
    if (gone & DIRTY) counters[WRITTEN_BACK] += !l3->bytes;
  }
  const bool foreseen = caches_foresee(caches, instruction, line);
  int level = MEMORY_FORESEEN;
  if (l2->bytes && cache_take(l2, line, 0, &gone)) {
    level = L2_FORESEEN;
  } else {
    if (l2->bytes && (gone & DIRTY)) counters[WRITTEN_BACK] += !l3->bytes;
    if (l3->bytes && cache_take(l3, line, 0, &gone)) level = L3_FORESEEN;
  }
  counters[level + (store ? 2 : foreseen ? 0 : 1)]++;
}
