// One session of TVM's RPC, in a process of its own.
#pragma once

#include <string>

namespace agent {

// Where an uploaded file of that name goes: its last part, in `folder`. Failure(kOther) if the name has no last part.
std::string WorkPath(const std::string& folder, const std::string& name);

// Serves the connection until the client leaves; runs in the child. Returns the process's exit code.
int ServeSession(int connection, const std::string& folder, int threads);

// Tells the client why its session was ended; runs in the parent.
void ReturnTimeout(int connection, double limit_s);

}  // namespace agent
