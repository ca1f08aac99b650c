// What the kernel says about this machine and this process.
#pragma once

#include <string>

#include "json.h"

namespace agent {

// All that `agent facts` prints. `path` is where free disk space is stated. Failure(kInput) if there is no such path.
Json Facts(const std::string& path);

// ELF's names of the architecture that the agent itself was compiled for.
const char* OwnElfMachine();
// Of the C library that runs the process, as 2.36.
std::string GlibcVersion();
// Whether version `have` is at least `needed`, part by part.
bool VersionIsAtLeast(const std::string& have, const std::string& needed);

// How many processors the process may use.
int Processors();
// The number of threads to run with: what was asked for, else what the package says and the machine has.
// Failure(kInput) if there are fewer processors.
int ChooseThreads(int asked, int packaged);

// Of a clock that only goes forward, in milliseconds.
double NowMs();
// Milliseconds since the kernel started the process, at most one tick of its clock too many.
double MillisecondsSinceStart();
// resident_bytes, peak_bytes, anonymous_bytes of the process; null where the kernel does not say.
Json ProcessMemory();
// The hottest zone in degrees Celsius, or null.
Json Temperature();

}  // namespace agent
