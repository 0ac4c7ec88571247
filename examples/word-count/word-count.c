// wc for standard input: counts newlines, words and bytes, and prints what the options ask for.
//
// 1. Every count equals `LC_ALL=C wc` reading a pipe: a byte is a character; the six ASCII
//    spaces end a word; a run of other bytes is a word when at least one of them is printable
//    ASCII (0x21-0x7e), so a run of control bytes or of bytes above 0x7f alone is none.
// 2. The output has wc's form: one number as it is, several right-aligned in columns of seven.
// 3. Exit codes: 0 counted and printed, 1 reading or writing failed, 2 the arguments are wrong.
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_COUNTED = 0, EXIT_IO = 1, EXIT_USAGE = 2 };

// One read a call to the host; 64 KiB is where the cost of crossing no longer shows.
static unsigned char block[64 * 1024];

struct counts {
  uint64_t lines, words, bytes;
};

struct wanted {
  bool lines, words, bytes, chars;
};

static bool write_all(int fd, const char *text, size_t length) {
  while (length > 0) {
    ssize_t written = write(fd, text, length);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text += written;
    length -= (size_t)written;
  }
  return true;
}

static int fail(int code, const char *what, const char *value) {
  write_all(2, "word-count: ", 12);
  write_all(2, what, strlen(what));
  write_all(2, value, strlen(value));
  write_all(2, "\n", 1);
  return code;
}

static bool is_space(unsigned char byte) { return byte == ' ' || (byte >= '\t' && byte <= '\r'); }

static bool is_graphic(unsigned char byte) { return byte > ' ' && byte < 0x7f; }

static bool count_stdin(struct counts *counts) {
  bool in_word = false;
  for (;;) {
    ssize_t got = read(0, block, sizeof block);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return false;
    if (got == 0) break;
    counts->bytes += (uint64_t)got;
    for (ssize_t i = 0; i < got; i++) {
      if (block[i] == '\n') counts->lines++;
      if (is_space(block[i])) {
        counts->words += in_word;
        in_word = false;
      } else if (is_graphic(block[i])) {
        in_word = true;
      }
    }
  }
  counts->words += in_word;
  return true;
}

// Appends `value` to the line, right-aligned in `width`; returns the new length of the line.
static size_t append(char *line, size_t length, uint64_t value, size_t width) {
  char digits[20];
  size_t count = 0;
  do {
    digits[count++] = (char)('0' + value % 10);
    value /= 10;
  } while (value > 0);
  if (length > 0) line[length++] = ' ';
  for (size_t i = count; i < width; i++) line[length++] = ' ';
  while (count > 0) line[length++] = digits[--count];
  return length;
}

static bool print(const struct counts *counts, const struct wanted *wanted) {
  char line[4 * 21 + 1];
  size_t length = 0;
  size_t width = wanted->lines + wanted->words + wanted->chars + wanted->bytes > 1 ? 7 : 1;
  if (wanted->lines) length = append(line, length, counts->lines, width);
  if (wanted->words) length = append(line, length, counts->words, width);
  if (wanted->chars) length = append(line, length, counts->bytes, width);
  if (wanted->bytes) length = append(line, length, counts->bytes, width);
  line[length++] = '\n';
  return write_all(1, line, length);
}

// Reads the options into `wanted`; returns the argument that is not one, or NULL.
static const char *parse(int argc, char **argv, struct wanted *wanted) {
  for (int i = 1; i < argc; i++) {
    const char *option = argv[i];
    if (option[0] != '-' || option[1] == '\0') return option;
    if (strcmp(option, "--lines") == 0) {
      wanted->lines = true;
    } else if (strcmp(option, "--words") == 0) {
      wanted->words = true;
    } else if (strcmp(option, "--bytes") == 0) {
      wanted->bytes = true;
    } else if (strcmp(option, "--chars") == 0) {
      wanted->chars = true;
    } else {
      for (const char *letter = option + 1; *letter != '\0'; letter++) {
        switch (*letter) {
          case 'l': wanted->lines = true; break;
          case 'w': wanted->words = true; break;
          case 'c': wanted->bytes = true; break;
          case 'm': wanted->chars = true; break;
          default: return option;
        }
      }
    }
  }
  return NULL;
}

int main(int argc, char **argv) {
  struct wanted wanted = {false, false, false, false};
  const char *wrong = parse(argc, argv, &wanted);
  if (wrong != NULL) {
    return fail(EXIT_USAGE, "takes -l -w -m -c and counts standard input; not an option: ", wrong);
  }
  if (!wanted.lines && !wanted.words && !wanted.bytes && !wanted.chars) {
    wanted.lines = wanted.words = wanted.bytes = true;
  }
  struct counts counts = {0, 0, 0};
  if (!count_stdin(&counts)) return fail(EXIT_IO, "cannot read standard input: ", strerror(errno));
  if (!print(&counts, &wanted)) return fail(EXIT_IO, "cannot write the result: ", strerror(errno));
  return EXIT_COUNTED;
}
