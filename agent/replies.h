// Standard output as the way of replies to one reader.
#pragma once

#include "files.h"

namespace agent {

// Standard output for replies alone: what a library prints there goes to standard error from now on.
Descriptor TakeStandardOutput();

// Ends the process when nobody can read replies any more, whatever it does then: measuring may take hours.
void EndWithReader(int replies);

}  // namespace agent
