// Arithmetic without subnormal numbers, as `edgedeploy/runtime/subnormals.py` sets it: they slow a core down many
// times.
#pragma once

namespace agent {

// Operands and results of this thread that are too small for a normal float become zero.
void FlushSubnormals();

}  // namespace agent
