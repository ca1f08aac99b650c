/* The threads of a network: linked into each network's library, in the place of TVM's own pool.
 *
 * TVM's pool yields to the scheduler while it waits, which costs 3 to 5 microseconds for each function, gives each
 * thread one fixed share, and counts half of an x86 machine's processors. Here waiting threads spin for a short
 * while before they sleep, and take the next share when they are done with one: a thread that the system held up
 * leaves the rest to the others.
 *
 * A network's functions reach this through the pointer that TVM's runtime fills in when it loads the library
 * (`__TVMBackendParallelLaunch`), once `edgedeploy_set_threads` has been called.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "tvm.h"

enum {
  MOST_THREADS = 256,
  SHARES_PER_THREAD = 4,   /* the last ones end together; more would cost more than they even out */
  SPIN_MICROSECONDS = 1000 /* longer than what lies between two functions of a network */
};

static int threads = 1;
static pthread_t workers[MOST_THREADS];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
static atomic_int sleeping, stopping;
static atomic_flag launching = ATOMIC_FLAG_INIT;

/* The work. Each thread has a part of the shares, of every loop the same part: its cache holds what it wrote in the
 * loop before. Who is done with its own takes from the others. In `parts` are the end of each, shifted, and the next
 * share to take. Who takes one by exchanging it may read the rest, which changes only when all shares are done. */
static struct {
  _Alignas(64) atomic_uint shares;
} parts[MOST_THREADS];
static atomic_int unfinished, failed;
static Share run_share;
static void* run_data;
static Group run_group;
static uint32_t run_mode;

static void pause_briefly(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__) || defined(__arm__)
  __asm__ volatile("yield");
#endif
}

/* How a thread rounds and whether it flushes subnormal numbers: workers calculate as the calling thread does. */
static uint32_t arithmetic_mode(void) {
#if defined(__x86_64__)
  return __builtin_ia32_stmxcsr() & ~0x3fu; /* without the exceptions that occurred */
#elif defined(__aarch64__)
  uint64_t mode;
  __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
  return (uint32_t)mode;
#elif defined(__arm__)
  uint32_t mode;
  __asm__ volatile("vmrs %0, fpscr" : "=r"(mode));
  return mode & 0x07c00000u; /* alternative half precision, default NaN, flush to zero, rounding */
#else
  return 0;
#endif
}

static void set_arithmetic_mode(uint32_t mode) {
#if defined(__x86_64__)
  __builtin_ia32_ldmxcsr(mode);
#elif defined(__aarch64__)
  __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)mode));
#elif defined(__arm__)
  __asm__ volatile("vmsr fpscr, %0" : : "r"(mode));
#endif
}

static int is_work_left(void) {
  for (int part = 0; part < threads; part++) {
    unsigned now = atomic_load(&parts[part].shares);
    if ((now & 0xffff) < now >> 16) return 1;
  }
  return 0;
}

static void take_part(atomic_uint* shares) {
  unsigned now = atomic_load(shares);
  while ((now & 0xffff) < now >> 16) {
    if (!atomic_compare_exchange_weak(shares, &now, now + 1)) continue;
    if (arithmetic_mode() != run_mode) set_arithmetic_mode(run_mode);
    int share = (int)(now & 0xffff);
    if (run_share(share, &run_group, run_data) != 0) atomic_store(&failed, share + 1);
    atomic_fetch_sub(&unfinished, 1);
    now = atomic_load(shares);
  }
}

static void take_shares(int thread) {
  for (int i = 0; i < threads; i++) take_part(&parts[(thread + i) % threads].shares);
}

/* Whether the condition came true within the time to spin. The clock, which may be slow, is read now and then. */
#define SPIN_UNTIL(condition)                                                   \
  ({                                                                            \
    int is_true = 0;                                                            \
    int64_t begin = 0, now = 0;                                                 \
    do {                                                                        \
      for (int i = 0; i < 64 && !(is_true = (condition)); i++) pause_briefly(); \
      if (is_true) break;                                                       \
      now = microseconds();                                                     \
      if (!begin) begin = now;                                                  \
    } while (now - begin < SPIN_MICROSECONDS);                                  \
    is_true;                                                                    \
  })

static void* work(void* thread) {
  while (!atomic_load(&stopping)) {
    take_shares((int)(intptr_t)thread);
    if (SPIN_UNTIL(is_work_left() || atomic_load(&stopping))) continue;
    pthread_mutex_lock(&mutex);
    atomic_fetch_add(&sleeping, 1);
    while (!is_work_left() && !atomic_load(&stopping)) pthread_cond_wait(&wake, &mutex);
    atomic_fetch_sub(&sleeping, 1);
    pthread_mutex_unlock(&mutex);
  }
  return NULL;
}

static void wake_all(void) {
  if (!atomic_load(&sleeping)) return;
  pthread_mutex_lock(&mutex);
  pthread_cond_broadcast(&wake);
  pthread_mutex_unlock(&mutex);
}

static int run_alone(Share share, void* data, int count) {
  Group group = {NULL, count};
  for (int i = 0; i < count; i++) {
    int result = share(i, &group, data);
    if (result != 0) return result;
  }
  return 0;
}

/* Run all shares of a loop. A second thread that calls meanwhile runs its own alone. */
static int launch(Share share, void* data, int wanted) {
  int count = wanted > 0 ? wanted : threads > 1 ? threads * SHARES_PER_THREAD : 1;
  if (threads == 1 || atomic_flag_test_and_set(&launching)) return run_alone(share, data, count);
  run_share = share;
  run_data = data;
  run_group = (Group){NULL, count};
  run_mode = arithmetic_mode();
  atomic_store(&failed, 0);
  atomic_store(&unfinished, count);
  for (int part = 0; part < threads; part++) {
    int begin = (count * part + threads - 1) / threads, end = (count * (part + 1) + threads - 1) / threads;
    atomic_store(&parts[part].shares, (unsigned)end << 16 | (unsigned)begin);
  }
  wake_all();
  take_shares(0);
  while (!SPIN_UNTIL(!atomic_load(&unfinished))) sched_yield();
  int failure = atomic_load(&failed);
  /* Once more in this thread, which is where the caller looks for the error. */
  int result = failure ? share(failure - 1, &run_group, data) : 0;
  atomic_flag_clear(&launching);
  return result;
}

static void stop(void) {
  atomic_store(&stopping, 1);
  pthread_mutex_lock(&mutex);
  pthread_cond_broadcast(&wake);
  pthread_mutex_unlock(&mutex);
  for (int i = 1; i < threads; i++) pthread_join(workers[i], NULL);
  atomic_store(&stopping, 0);
  threads = 1;
}

__attribute__((destructor)) static void stop_at_unloading(void) { stop(); }

/* edgedeploy_set_threads(count) -> how many threads there are now, as a function that TVM's modules offer. */
__attribute__((visibility("default"))) int __tvm_ffi_edgedeploy_set_threads(void* self, const Any* arguments,
                                                                            int32_t count, Any* result) {
  (void)self;
  if (count != 1 || arguments[0].type != INTEGER) return -1;
  stop();
  int wanted = arguments[0].integer < MOST_THREADS ? (int)arguments[0].integer : MOST_THREADS;
  while (threads < wanted && pthread_create(&workers[threads], NULL, work, (void*)(intptr_t)threads) == 0) threads++;
  if (&__TVMBackendParallelLaunch) __TVMBackendParallelLaunch = launch;
  *result = (Any){.type = INTEGER, .integer = threads};
  return 0;
}
