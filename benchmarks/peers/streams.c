// SPDX-License-Identifier: Apache-2.0
// A plain loop over memory, written by hand: what a core can read or write when it goes over
// several places in turn. Something to hold `headrace measure bandwidth` against (promises.py),
// which shares no code with it.
//
//   streams read|nt_write CPU,CPU,... MiB STREAMS
//
// A thread on each CPU touches a part of so many MiB in all, asked for in huge pages, and then goes
// over it again and again for a third of a second, at so many places a part of it apart. Prints
// "MB/s: N", the bytes that each thread read or wrote by its time, of all together.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#if defined(__AVX__)
#include <immintrin.h>
#endif

enum { kLine = 64, kBlock = 4 * kLine, kMostThreads = 1024, kMostStreams = 16 };
// Bytes of each stream between two looks at the clock.
static const size_t kBetweenLooks = 4096 * kBlock;
static const double kSeconds = 1.0 / 3;

typedef uint64_t Line __attribute__((vector_size(kLine)));

struct Part {
  pthread_t thread;
  int cpu;
  int streams;
  int write;
  size_t bytes;
  double rate;  // bytes per second
  Line sum;
};

static struct Part parts[kMostThreads];
static pthread_barrier_t all_touched;

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void fail(const char* what) {
  fprintf(stderr, "streams: %s\n", what);
  exit(1);
}

static void store_around(char* to, Line line) {
#if defined(__AVX512F__)
  _mm512_stream_si512((__m512i*)to, (__m512i)line);
#elif defined(__AVX__)
  const __m256i* half = (const __m256i*)&line;
  _mm256_stream_si256((__m256i*)to, half[0]);
  _mm256_stream_si256((__m256i*)(to + 32), half[1]);
#else
  *(volatile Line*)to = line;
#endif
}

// So much of each place, four lines of each in turn.
static void go_over(struct Part* part, char* memory, size_t each, size_t from, size_t to) {
  Line sums[4] = {part->sum, part->sum, part->sum, part->sum};
  for (size_t at = from; at < to; at += kBlock) {
    for (int stream = 0; stream < part->streams; ++stream) {
      char* place = memory + (size_t)stream * each + at;
      for (int i = 0; i < 4; ++i) {
        if (part->write)
          store_around(place + i * kLine, sums[i]);
        else
          sums[i] ^= *(const Line*)(place + i * kLine);
      }
    }
  }
  part->sum ^= sums[0] ^ sums[1] ^ sums[2] ^ sums[3];
}

static void* work(void* given) {
  struct Part* part = given;
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  CPU_SET(part->cpu, &cpus);
  if (pthread_setaffinity_np(pthread_self(), sizeof(cpus), &cpus) != 0) fail("no such CPU");
  char* memory =
      mmap(NULL, part->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail("no memory");
  madvise(memory, part->bytes, MADV_HUGEPAGE);
  memset(memory, 1, part->bytes);
  // Not a power of two apart, since they would meet in the same sets of the caches.
  const size_t each = ((part->bytes / (size_t)part->streams / kBlock - 1) / 2 * 2 - 1) * kBlock;
  pthread_barrier_wait(&all_touched);
  const double begin = now();
  double moved = 0, time = 0;
  for (size_t at = 0; time < kSeconds; at = at < each ? at : 0) {
    const size_t to = each - at < kBetweenLooks ? each : at + kBetweenLooks;
    go_over(part, memory, each, at, to);
    moved += (double)(to - at) * part->streams;
    time = now() - begin;
    at = to;
  }
  part->rate = moved / time;
  munmap(memory, part->bytes);
  return NULL;
}

int main(int count, char** words) {
  if (count != 5) fail("streams read|nt_write CPU,CPU,... MiB STREAMS");
  const int write = strcmp(words[1], "nt_write") == 0;
  const int streams = atoi(words[4]);
  int threads = 0;
  for (char* word = strtok(words[2], ","); word && threads < kMostThreads;
       word = strtok(NULL, ",")) {
    parts[threads++].cpu = atoi(word);
  }
  const size_t bytes = (size_t)atol(words[3]) << 20;
  if (threads == 0 || streams < 1 || streams > kMostStreams || bytes / (size_t)threads < 1 << 20) {
    fail("give CPUs, 1 to 16 streams, and 1 MiB or more for each CPU");
  }
  pthread_barrier_init(&all_touched, NULL, (unsigned)threads);
  for (int i = 0; i < threads; ++i) {
    parts[i].streams = streams;
    parts[i].write = write;
    parts[i].bytes = bytes / (size_t)threads / 4096 * 4096;
    if (pthread_create(&parts[i].thread, NULL, work, &parts[i]) != 0) fail("no thread");
  }
  double rate = 0;
  uint64_t sum = 0;
  for (int i = 0; i < threads; ++i) {
    pthread_join(parts[i].thread, NULL);
    rate += parts[i].rate;
    sum ^= parts[i].sum[0];
  }
  printf("MB/s: %.1f\n", rate / 1e6);
  return sum == 1;  // which it never is: nothing read may be left out by the compiler
}
