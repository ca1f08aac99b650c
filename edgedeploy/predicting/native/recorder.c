/*
 * A plugin for QEMU's user-mode emulators which records what a program executes between two of its system calls, and
 * what that misses in a model of the data caches.
 *
 * The program marks time by a system call with a certain first argument (`mark=NUMBER:ARGUMENT`). From mark `watch` on,
 * the model of the caches runs; what executes between mark `record` and the next one is recorded. Before and afterwards
 * nothing is watched, which is several times as quick. Only the first thread is recorded.
 *
 * Arguments: out=FOLDER (which is there), mark=NUMBER:ARGUMENT, watch=MARK, record=MARK, l1=BYTES:WAYS, l2=BYTES:WAYS,
 * l3=BYTES:WAYS.
 *
 * Files, which appear at the mark after `record`:
 *   FOLDER/blocks, text: `block ID ADDRESS MISSES... CODE` for each block of instructions that ran, numbers decimal but
 *     for address and code, misses as enum counter in caches.h has them; `file START END OFFSET PATH` for each mapping.
 *   FOLDER/trace, binary: pairs of uint32 in the machine's order: a block, and how often it ran before another one did.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "caches.h"
#include "qemu_plugin.h"

#define EXPORT __attribute__((visibility("default")))
EXPORT int qemu_plugin_version = 1;

#define WIDEST 4 /* bytes of an instruction of 64-bit ARM */

struct block {
  uint32_t id;
  bool ran;
  uint64_t address;
  uint64_t misses[COUNTERS];
  size_t bytes;
  uint8_t code[];
};

struct instruction {
  struct access access;
  struct block* block;
};

static struct {
  char folder[3072];
  int64_t mark;
  uint64_t argument, watch, record;
} settings;

static struct block** blocks;
static uint32_t count, room;
static uint64_t marks;
static bool recording;
static struct caches caches;
static FILE* trace;

static struct {
  uint32_t block, times;
} run;

static void fail(const char* what) {
  fprintf(stderr, "recorder: %s\n", what);
  exit(1);
}

static void* required(void* memory) {
  if (!memory) fail("out of memory");
  return memory;
}

/* ---- what runs ---- */

static void end_run(void) {
  if (run.times && fwrite(&run, sizeof run, 1, trace) != 1) fail("cannot write the trace");
  run.times = 0;
}

static void on_block(unsigned cpu, void* data) {
  struct block* block = data;
  if (!recording || cpu) return;
  if (!run.times || run.block != block->id) {
    end_run();
    run.block = block->id;
    block->ran = true;
  }
  if (++run.times == UINT32_MAX) end_run();
}

static void on_access(unsigned cpu, qemu_plugin_meminfo_t info, uint64_t address, void* data) {
  static uint64_t unrecorded[COUNTERS];
  struct instruction* instruction = data;
  if (cpu) return;
  caches_access(&caches, &instruction->access, address, qemu_plugin_mem_is_store(info),
                recording ? instruction->block->misses : unrecorded);
}

static void on_translation(qemu_plugin_id_t id, struct qemu_plugin_tb* tb) {
  (void)id;
  const size_t length = qemu_plugin_tb_n_insns(tb);
  struct block* block = required(calloc(1, sizeof *block + length * WIDEST));
  block->id = count;
  block->address = qemu_plugin_tb_vaddr(tb);
  if (count == room) {
    room = room ? 2 * room : 1 << 12;
    blocks = required(realloc(blocks, room * sizeof(struct block*)));
  }
  blocks[count++] = block;
  for (size_t i = 0; i < length; ++i) {
    struct qemu_plugin_insn* insn = qemu_plugin_tb_get_insn(tb, i);
    const size_t size = qemu_plugin_insn_size(insn);
    if (size > WIDEST) fail("an instruction is longer than those of 64-bit ARM");
    memcpy(block->code + block->bytes, qemu_plugin_insn_data(insn), size);
    block->bytes += size;
    struct instruction* instruction = required(calloc(1, sizeof *instruction));
    instruction->block = block;
    qemu_plugin_register_vcpu_mem_cb(insn, on_access, QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_RW, instruction);
  }
  qemu_plugin_register_vcpu_tb_exec_cb(tb, on_block, QEMU_PLUGIN_CB_NO_REGS, block);
}

/* ---- files ---- */

static FILE* opened(const char* name) {
  char path[sizeof settings.folder + 16];
  snprintf(path, sizeof path, "%s/%s", settings.folder, name);
  FILE* file = fopen(path, "w");
  if (!file) fail("cannot write the folder `out`");
  return file;
}

/* The files that are mapped. On 64 bits the program's addresses are those of the emulator's own memory. */
static void write_files(FILE* text) {
  char line[4352], path[4096];
  unsigned long long start, end, offset;
  FILE* maps = fopen("/proc/self/maps", "r");
  if (!maps) fail("cannot read /proc/self/maps");
  while (fgets(line, sizeof line, maps)) {
    if (sscanf(line, "%llx-%llx %*s %llx %*s %*s %4095[^\n]", &start, &end, &offset, path) == 4 && path[0] == '/')
      fprintf(text, "file %llx %llx %llx %s\n", start, end, offset, path);
  }
  fclose(maps);
}

static void write_record(void) {
  end_run();
  FILE* text = opened("blocks");
  for (uint32_t i = 0; i < count; ++i) {
    const struct block* block = blocks[i];
    if (!block->ran) continue;
    fprintf(text, "block %" PRIu32 " %" PRIx64, block->id, block->address);
    for (int k = 0; k < COUNTERS; ++k) fprintf(text, " %" PRIu64, block->misses[k]);
    fputc(' ', text);
    for (size_t k = 0; k < block->bytes; ++k) fprintf(text, "%02x", block->code[k]);
    fputc('\n', text);
  }
  write_files(text);
  if (fclose(trace) || fclose(text)) fail("cannot write the record");
}

/* ---- marks ---- */

static void on_syscall(qemu_plugin_id_t id, unsigned cpu, int64_t number, uint64_t a1, uint64_t a2, uint64_t a3,
                       uint64_t a4, uint64_t a5, uint64_t a6, uint64_t a7, uint64_t a8);

static void listen(qemu_plugin_id_t id) { qemu_plugin_register_vcpu_syscall_cb(id, on_syscall); }

static void watch(qemu_plugin_id_t id) {
  listen(id);
  qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
}

static void leave(qemu_plugin_id_t id) { (void)id; }

static void on_syscall(qemu_plugin_id_t id, unsigned cpu, int64_t number, uint64_t a1, uint64_t a2, uint64_t a3,
                       uint64_t a4, uint64_t a5, uint64_t a6, uint64_t a7, uint64_t a8) {
  (void)a2, (void)a3, (void)a4, (void)a5, (void)a6, (void)a7, (void)a8;
  if (number != settings.mark || a1 != settings.argument || cpu) return;
  if (recording) {
    recording = false;
    write_record();
    qemu_plugin_reset(id, leave);
    return;
  }
  recording = marks == settings.record;
  if (marks++ == settings.watch) qemu_plugin_reset(id, watch); /* everything is translated again, with the watching code */
}

/* ---- arguments ---- */

static bool is_read(const char* name, const char* value) {
  if (name[0] == 'l' && name[1] >= '1' && name[1] <= '3' && !name[2]) {
    struct cache* level = &caches.levels[name[1] - '1'];
    return sscanf(value, "%" SCNu64 ":%" SCNu32, &level->bytes, &level->ways) == 2;
  }
  if (!strcmp(name, "out")) {
    snprintf(settings.folder, sizeof settings.folder, "%s", value);
    return true;
  }
  if (!strcmp(name, "mark")) return sscanf(value, "%" SCNd64 ":%" SCNu64, &settings.mark, &settings.argument) == 2;
  if (!strcmp(name, "watch")) return sscanf(value, "%" SCNu64, &settings.watch) == 1;
  if (!strcmp(name, "record")) return sscanf(value, "%" SCNu64, &settings.record) == 1;
  return false;
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t* info, int argc, char** argv) {
  (void)info;
  settings.mark = -1;
  for (int i = 0; i < argc; ++i) {
    char* value = strchr(argv[i], '=');
    if (value) *value++ = 0;
    if (!value || !is_read(argv[i], value)) return fprintf(stderr, "recorder: argument %s\n", argv[i]), -1;
  }
  if (!caches_make(&caches)) return fprintf(stderr, "recorder: no such caches\n"), -1;
  if (settings.record <= settings.watch) return fprintf(stderr, "recorder: watch first, then record\n"), -1;
  trace = opened("trace");
  listen(id);
  return 0;
}
