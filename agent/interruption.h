// Whether the process was asked to end: SIGINT and SIGTERM.
#pragma once

namespace agent {

// From now on these signals are remembered, and end no wait but what asks here.
void RememberInterruption();
bool Interrupted();
// The same for a process that takes its signals by other means.
void Interrupt();

}  // namespace agent
