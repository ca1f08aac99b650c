#include "interruption.h"

#include <signal.h>

#include <initializer_list>

namespace agent {
namespace {

volatile sig_atomic_t asked = 0;

void OnSignal(int) { asked = 1; }

}  // namespace

void RememberInterruption() {
  struct sigaction action{};
  action.sa_handler = OnSignal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (const int each : {SIGINT, SIGTERM}) sigaction(each, &action, nullptr);
}

bool Interrupted() { return asked != 0; }

}  // namespace agent
