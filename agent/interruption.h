// Whether the process was asked to end: SIGINT and SIGTERM.
#pragma once

namespace agent {

// From now on these signals are remembered, and end no wait but what asks here.
void RememberInterruption();
bool Interrupted();

}  // namespace agent
