// A guest that does, step by step, what its arguments say: it misbehaves in every way a
// workload can, so that what the platform says about it can be tested. README.md lists the steps.
//
// 1. Steps run in order, each with a fixed number of arguments; after the last the exit code is 0.
// 2. Only a step writes: whatever is on stdout or stderr was asked for, except that a wrong step
//    says so on stderr and exits 2, and a step whose own call fails says so and exits 1.
// 3. Output patterns depend only on the position, never on time or chance.
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_REFUSED = 12 };
enum { PAGE_BYTES = 64 * 1024, PAGES_PER_MIB = 16 };

static unsigned char block[64 * 1024];
// Written to by the steps that must not be optimized away.
static volatile uint64_t sink;

extern char **environ;

static _Noreturn void fail(int code, const char *step, const char *why);

static void put_bytes(int fd, const void *bytes, size_t length, const char *step) {
  const char *at = bytes;
  while (length > 0) {
    ssize_t written = write(fd, at, length);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail(EXIT_FAILED, step, strerror(errno));
    at += written;
    length -= (size_t)written;
  }
}

static void put(int fd, const char *text, const char *step) {
  put_bytes(fd, text, strlen(text), step);
}

static _Noreturn void fail(int code, const char *step, const char *why) {
  const char *parts[] = {"probe: ", step, ": ", why, "\n"};
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
    // Not put(): stderr itself may be what failed.
    if (write(2, parts[i], strlen(parts[i])) < 0) break;
  }
  exit(code);
}

static void put_number(int fd, uint64_t value, const char *step) {
  char digits[21];
  size_t at = sizeof digits;
  digits[--at] = '\0';
  do {
    digits[--at] = (char)('0' + value % 10);
    value /= 10;
  } while (value > 0);
  put(fd, digits + at, step);
  put(fd, "\n", step);
}

// A whole number, or UINT64_MAX for the word "forever".
static uint64_t number(const char *text, const char *step) {
  if (strcmp(text, "forever") == 0) return UINT64_MAX;
  char *end;
  errno = 0;
  uint64_t value = strtoull(text, &end, 10);
  if (errno != 0 || end == text || *end != '\0' || *text == '-') {
    fail(EXIT_USAGE, step, "takes a whole number or forever");
  }
  return value;
}

static void spin(uint64_t rounds) {
  for (uint64_t i = 0; rounds == UINT64_MAX || i < rounds; i++) sink = sink * 31 + i;
}

static void eat(uint64_t mib, const char *step) {
  uint64_t pages = mib > UINT64_MAX / PAGES_PER_MIB ? UINT64_MAX : mib * PAGES_PER_MIB;
  for (uint64_t i = 0; i < pages; i++) {
    size_t before = __builtin_wasm_memory_grow(0, 1);
    if (before == SIZE_MAX) fail(EXIT_REFUSED, step, "memory.grow was refused");
    // Touched, so that the memory is really used and not only promised.
    for (size_t at = 0; at < PAGE_BYTES; at += 4096) {
      *(volatile unsigned char *)(before * PAGE_BYTES + at) = 1;
    }
  }
}

// Never inlined: its name is to be in what is said of the trap.
static __attribute__((noinline)) _Noreturn void starve(void) {
  while (__builtin_wasm_memory_grow(0, 1) != SIZE_MAX) {
  }
  __builtin_trap();
}

// The store after the call keeps this from becoming a loop.
static __attribute__((noinline)) uint64_t recurse(uint64_t depth) {
  if (depth == 0) return 0;
  uint64_t below = recurse(depth - 1);
  sink = below;
  return below + 1;
}

// As recurse, with a frame of 1 KiB on the stack in linear memory.
static __attribute__((noinline)) unsigned recurse_frames(uint64_t depth) {
  if (depth == 0) return 0;
  volatile unsigned char frame[1024];
  frame[depth % sizeof frame] = (unsigned char)depth;
  unsigned below = recurse_frames(depth - 1);
  return below + frame[depth % sizeof frame];
}

// Lines of 64 bytes, 63 letters that move on by one a line, so that a lost byte shows.
static void write_pattern(int fd, uint64_t length, const char *step) {
  uint64_t position = 0;
  while (position < length) {
    size_t count = sizeof block;
    if (length - position < count) count = (size_t)(length - position);
    for (size_t i = 0; i < count; i++) {
      uint64_t at = position + i;
      block[i] = at % 64 == 63 ? '\n' : (unsigned char)('a' + (at / 64 + at % 64) % 26);
    }
    put_bytes(fd, block, count, step);
    if (length != UINT64_MAX) position += count;
  }
}

// No pattern, which would take longer than the writing.
static void flood(uint64_t mib, const char *step) {
  memset(block, '.', sizeof block);
  for (uint64_t i = 0; mib == UINT64_MAX || i < mib * (1024 * 1024 / sizeof block); i++) {
    put_bytes(1, block, sizeof block, step);
  }
}

// Reads up to `limit` bytes of stdin; copies them to stdout when `copy`; returns how many came.
static uint64_t read_stdin(uint64_t limit, int copy, const char *step) {
  uint64_t total = 0;
  while (total < limit) {
    size_t want = sizeof block;
    if (limit - total < want) want = (size_t)(limit - total);
    ssize_t got = read(0, block, want);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(EXIT_FAILED, step, strerror(errno));
    if (got == 0) break;
    if (copy) put_bytes(1, block, (size_t)got, step);
    total += (uint64_t)got;
  }
  return total;
}

static void sleep_ms(uint64_t ms, const char *step) {
  if (ms == UINT64_MAX) {
    for (;;) sleep_ms(3600000, step);
  }
  struct timespec left = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};
  while (nanosleep(&left, &left) != 0) {
    if (errno != EINTR) fail(EXIT_FAILED, step, strerror(errno));
  }
}

static void put_clock(clockid_t clock, const char *step) {
  struct timespec now;
  if (clock_gettime(clock, &now) != 0) fail(EXIT_FAILED, step, strerror(errno));
  put_number(1, (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec, step);
}

static void put_random(uint64_t count, const char *step) {
  static const char hex[] = "0123456789abcdef";
  for (uint64_t i = 0; i < count; i++) {
    unsigned char byte;
    if (getentropy(&byte, 1) != 0) fail(EXIT_FAILED, step, strerror(errno));
    char text[2] = {hex[byte >> 4], hex[byte & 15]};
    put_bytes(1, text, 2, step);
  }
  put(1, "\n", step);
}

static void takes_nothing(void) { sink++; }

// Never inlined, as starve.
static __attribute__((noinline)) void trap(const char *kind, const char *step) {
  volatile uint32_t zero = 0;
  if (strcmp(kind, "unreachable") == 0) {
    __builtin_trap();
  } else if (strcmp(kind, "memory") == 0) {
    sink = *(volatile uint64_t *)(uintptr_t)(0xfffffff8u + zero);
  } else if (strcmp(kind, "divide") == 0) {
    // In assembly: a division by zero is undefined in C, and the compiler may drop it.
    uint32_t quotient;
    __asm__ volatile("local.get %1\n\tlocal.get %2\n\ti32.div_u\n\tlocal.set %0"
                     : "=r"(quotient)
                     : "r"(1u), "r"(zero));
    sink = quotient;
  } else if (strcmp(kind, "call") == 0) {
    void (*volatile real)(void) = takes_nothing;
    ((uint64_t(*)(uint64_t))(uintptr_t)real)(zero);
  } else {
    fail(EXIT_USAGE, step, "takes unreachable, memory, divide or call");
  }
}

static int stream(const char *name, const char *step) {
  if (strcmp(name, "stdin") == 0) return 0;
  if (strcmp(name, "stdout") == 0) return 1;
  if (strcmp(name, "stderr") == 0) return 2;
  fail(EXIT_USAGE, step, "takes stdin, stdout or stderr");
}

static void put_open(const char *path, const char *step) {
  int fd = open(path, O_RDONLY);
  put(1, fd < 0 ? strerror(errno) : "opened", step);
  put(1, "\n", step);
}

// The steps without an argument. Returns 1 when `step` was one of them.
static int run_plain(const char *step, int argc, char **argv) {
  if (strcmp(step, "args") == 0) {
    for (int i = 0; i < argc; i++) put(1, argv[i], step), put(1, "\n", step);
  } else if (strcmp(step, "env") == 0) {
    for (char **entry = environ; entry != NULL && *entry != NULL; entry++) {
      put(1, *entry, step);
      put(1, "\n", step);
    }
  } else if (strcmp(step, "echo") == 0) {
    read_stdin(UINT64_MAX, 1, step);
  } else if (strcmp(step, "count") == 0) {
    put_number(1, read_stdin(UINT64_MAX, 0, step), step);
  } else if (strcmp(step, "now") == 0) {
    put_clock(CLOCK_REALTIME, step);
  } else if (strcmp(step, "monotonic") == 0) {
    put_clock(CLOCK_MONOTONIC, step);
  } else if (strcmp(step, "starve") == 0) {
    starve();
  } else if (strcmp(step, "abort") == 0) {
    abort();
  } else {
    return 0;
  }
  return 1;
}

// The steps with one argument. Returns 1 when `step` was one of them.
static int run_with(const char *step, const char *argument) {
  if (strcmp(step, "spin") == 0) {
    spin(number(argument, step));
  } else if (strcmp(step, "eat") == 0) {
    eat(number(argument, step), step);
  } else if (strcmp(step, "recurse") == 0) {
    recurse(number(argument, step));
  } else if (strcmp(step, "frames") == 0) {
    sink = recurse_frames(number(argument, step));
  } else if (strcmp(step, "stdout") == 0) {
    write_pattern(1, number(argument, step), step);
  } else if (strcmp(step, "stderr") == 0) {
    write_pattern(2, number(argument, step), step);
  } else if (strcmp(step, "flood") == 0) {
    flood(number(argument, step), step);
  } else if (strcmp(step, "out") == 0) {
    put(1, argument, step);
    put(1, "\n", step);
  } else if (strcmp(step, "err") == 0) {
    put(2, argument, step);
    put(2, "\n", step);
  } else if (strcmp(step, "read") == 0) {
    read_stdin(number(argument, step), 0, step);
  } else if (strcmp(step, "close") == 0) {
    if (close(stream(argument, step)) != 0) fail(EXIT_FAILED, step, strerror(errno));
  } else if (strcmp(step, "sleep") == 0) {
    sleep_ms(number(argument, step), step);
  } else if (strcmp(step, "random") == 0) {
    put_random(number(argument, step), step);
  } else if (strcmp(step, "open") == 0) {
    put_open(argument, step);
  } else if (strcmp(step, "trap") == 0) {
    trap(argument, step);
  } else if (strcmp(step, "exit") == 0) {
    exit((int)number(argument, step));
  } else {
    return 0;
  }
  return 1;
}

int main(int argc, char **argv) {
  for (int i = 1; i < argc; i++) {
    if (run_plain(argv[i], argc, argv)) continue;
    if (i + 1 >= argc) fail(EXIT_USAGE, argv[i], "not a step, or its argument is missing");
    // main's own return value goes another way to the host than exit() does.
    if (strcmp(argv[i], "return") == 0) return (int)number(argv[i + 1], argv[i]);
    if (!run_with(argv[i], argv[i + 1])) fail(EXIT_USAGE, argv[i], "not a step");
    i++;
  }
  return 0;
}
