// The kernels of the metering bench. Their bytes are checked in, so that the bench needs no compiler; made by
//   clang-14 --target=wasm32 -nostdlib -O2 -fno-builtin -Wl,--no-entry -o kernels.wasm kernels.c
// Each export takes how much to do and gives a number that depends on all of it.
#include <stdint.h>

#define EXPORT(name) __attribute__((export_name(#name), noinline))

static const uint32_t SHA_K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t state[8];
static uint8_t block[1 << 16];

static uint32_t turn(uint32_t x, int n) { return (x >> n) | (x << (32 - n)); }

static void compress(const uint8_t *p) {
  uint32_t w[64], s[8];
  for (int i = 0; i < 16; i++)
    w[i] = (uint32_t)p[i * 4] << 24 | (uint32_t)p[i * 4 + 1] << 16 | (uint32_t)p[i * 4 + 2] << 8 | p[i * 4 + 3];
  for (int i = 16; i < 64; i++)
    w[i] = w[i - 16] + w[i - 7] + (turn(w[i - 15], 7) ^ turn(w[i - 15], 18) ^ (w[i - 15] >> 3)) +
           (turn(w[i - 2], 17) ^ turn(w[i - 2], 19) ^ (w[i - 2] >> 10));
  for (int i = 0; i < 8; i++) s[i] = state[i];
  for (int i = 0; i < 64; i++) {
    uint32_t one = s[7] + (turn(s[4], 6) ^ turn(s[4], 11) ^ turn(s[4], 25)) + ((s[4] & s[5]) ^ (~s[4] & s[6])) +
                   SHA_K[i] + w[i];
    uint32_t two = (turn(s[0], 2) ^ turn(s[0], 13) ^ turn(s[0], 22)) +
                   ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
    s[7] = s[6], s[6] = s[5], s[5] = s[4], s[4] = s[3] + one;
    s[3] = s[2], s[2] = s[1], s[1] = s[0], s[0] = one + two;
  }
  for (int i = 0; i < 8; i++) state[i] += s[i];
}

EXPORT(sha256) uint32_t sha256(int blocks) {
  for (int i = 0; i < 8; i++) state[i] = SHA_K[i] ^ 0x5be0cd19;
  for (unsigned i = 0; i < sizeof block; i++) block[i] = (uint8_t)(i * 7);
  for (int n = 0; n < blocks; n++)
    for (unsigned i = 0; i < sizeof block; i += 64) compress(block + i);
  return state[0];
}

#define SIDE 256
static double a[SIDE * SIDE], b[SIDE * SIDE], c[SIDE * SIDE];

EXPORT(matmul) double matmul(int times) {
  double sum = 0;
  for (int i = 0; i < SIDE * SIDE; i++) a[i] = (i % 97) * 0.5, b[i] = (i % 89) * 0.25, c[i] = 0;
  for (int n = 0; n < times; n++)
    for (int i = 0; i < SIDE; i++)
      for (int k = 0; k < SIDE; k++) {
        double x = a[i * SIDE + k];
        for (int j = 0; j < SIDE; j++) c[i * SIDE + j] += x * b[k * SIDE + j];
      }
  for (int i = 0; i < SIDE * SIDE; i++) sum += c[i];
  return sum;
}

typedef struct { double x, y, z, vx, vy, vz, mass; } Body;
static Body bodies[5];

EXPORT(nbody) double nbody(int steps) {
  for (int i = 0; i < 5; i++)
    bodies[i] = (Body){4.8 * i, -1.1 * i * i, 0.1 * i, 0.6 - 0.1 * i, 2.8 * (i & 1), 0.02 * i, i ? 0.03 / i : 39.4};
  for (int s = 0; s < steps; s++) {
    for (int i = 0; i < 5; i++)
      for (int j = i + 1; j < 5; j++) {
        Body *p = &bodies[i], *q = &bodies[j];
        double dx = p->x - q->x, dy = p->y - q->y, dz = p->z - q->z;
        double far = dx * dx + dy * dy + dz * dz, pull = 0.01 / (far * __builtin_sqrt(far));
        p->vx -= dx * q->mass * pull, p->vy -= dy * q->mass * pull, p->vz -= dz * q->mass * pull;
        q->vx += dx * p->mass * pull, q->vy += dy * p->mass * pull, q->vz += dz * p->mass * pull;
      }
    for (int i = 0; i < 5; i++) {
      Body *p = &bodies[i];
      p->x += 0.01 * p->vx, p->y += 0.01 * p->vy, p->z += 0.01 * p->vz;
    }
  }
  return bodies[0].x + bodies[1].y;
}

#define SIEVE 1000000
static volatile uint8_t crossed[SIEVE + 1];

EXPORT(sieve) int sieve(int times) {
  int primes = 0;
  for (int n = 0; n < times; n++) {
    primes = 0;
    for (int i = 0; i <= SIEVE; i++) crossed[i] = 0;
    for (int i = 2; i <= SIEVE; i++) {
      if (crossed[i]) continue;
      primes++;
      for (int j = i + i; j <= SIEVE; j += i) crossed[j] = 1;
    }
  }
  return primes;
}

EXPORT(fib) int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
