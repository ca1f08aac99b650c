// The agent: runs packages of edgedeploy on a board. docs/agent.md is its contract.

#include <dlfcn.h>
#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <new>
#include <string_view>

#include "commands.h"
#include "files.h"
#include "version.h"

namespace agent {
namespace {

// What the names of a network's functions begin and end with in its library.
constexpr std::string_view kExported = "__tvm_ffi_";
constexpr std::string_view kScheduled = "_scheduled";
// Where an entry is looked for: no shorter than a step, and at most so many steps before.
constexpr int kStep = 16;
constexpr int kFurthest = 1 << 16;

struct Command {
  const char* name;
  Code (*run)(const Words& words);
  const char* arguments;  // as its usage shows them
};

constexpr Command kCommands[] = {
    {"run", RunCommand,
     "PACKAGE [--input NAME=FILE]... [--fill zeros|ones|selftest] [--output-dir DIR]\n"
     "                 [--repeat N] [--number N] [--warmup N] [--threads N] [--entry N]"},
    {"selftest", SelfTestCommand, "PACKAGE [--threads N]"},
    {"verify", VerifyCommand, "PACKAGE"},
    {"facts", FactsCommand, "[--path DIR]"},
    {"demo", DemoCommand,
     "MODEL|PACKAGE (--image FILE... | --camera [DEVICE]) [--repeat N] [--threads N] [--frames N]\n"
     "                 [--size WIDTHxHEIGHT] [--json | --stream]"},
    {"serve", ServeCommand, "PACKAGE [--threads N]"},
    {"service", ServiceCommand,
     "MODEL --socket PATH [--camera [DEVICE]] [--threads N] [--log FILE] [--log-bytes N]\n"
     "                 [--request-bytes N]"},
    {"rpc", RpcCommand,
     "[--host ADDRESS] [--port N] [--port-end N] [--tracker HOST:PORT] [--key KEY]\n"
     "                 [--custom-address ADDRESS] [--announce-port N] [--work-dir DIR] [--threads N] [--heartbeat S]"},
};

// Of one command, or of all.
void PrintUsage(const std::string& command = "") {
  std::string text;
  const auto add = [&](const std::string& line) { text += (text.empty() ? "usage: agent " : "       agent ") + line; };
  for (const Command& each : kCommands) {
    if (command.empty() || command == each.name) add(std::string(each.name) + " " + each.arguments + "\n");
  }
  if (command.empty()) add("--version | --help\n");
  WriteAll(STDOUT_FILENO, text.data(), text.size(), "to standard output");
}

struct Fatal {
  int number;
  const char* message;
};

constexpr Fatal kFatal[] = {
    {SIGFPE, "agent: it was ended by SIGFPE"},
    {SIGSEGV, "agent: it was ended by SIGSEGV"},
    {SIGBUS, "agent: it was ended by SIGBUS"},
    {SIGABRT, "agent: it was ended by SIGABRT"},
    {SIGTRAP, "agent: it was ended by SIGTRAP"},
    {SIGSYS, "agent: it was ended by SIGSYS"},
    // Code for a newer processor ends so.
    {SIGILL, "agent: the code uses an instruction that this processor lacks: it is for another board"},
};

// The function of a network that was running, by the instruction that a signal's context points to; empty for other
// code. A network's library exports the entry of each of its functions, and the rest of it follows there.
std::string_view CrashedFunction(const void* context) {
  if (AGENT_INSTRUCTION_POINTER < 0) return {};
  uintptr_t words[sizeof(ucontext_t) / sizeof(uintptr_t)];
  std::memcpy(words, context, sizeof words);
  const char* address = reinterpret_cast<const char*>(words[AGENT_INSTRUCTION_POINTER]);
  Dl_info found;
  for (int i = 0; i < kFurthest && dladdr(address, &found) != 0; ++i, address -= kStep) {
    if (!found.dli_sname) continue;
    std::string_view name = found.dli_sname;
    if (name.substr(0, kExported.size()) != kExported) return {};
    name.remove_prefix(kExported.size());
    return name.substr(0, name.rfind(kScheduled));
  }
  return {};
}

// Says which signal ends the agent, and where: without a word nobody would guess why.
void OnFatal(int number, siginfo_t*, void* context) {
  const auto say = [](std::string_view text) {
    const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
    static_cast<void>(written);
  };
  for (const Fatal& each : kFatal) {
    if (each.number == number) say(each.message);
  }
  if (const std::string_view function = CrashedFunction(context); !function.empty()) {
    say(" (in the network's function ");
    say(function);
    say(")");
  }
  say("\n");
  if (number == SIGILL) _exit(static_cast<int>(Code::kPackage));
  raise(number);  // once the handler has returned: by then the signal ends the process
}

void TakeFatalSignals() {
  static char memory[1 << 16];  // the stack may be what ran out
  const stack_t stack{memory, 0, sizeof memory};
  sigaltstack(&stack, nullptr);
  struct sigaction action{};
  action.sa_sigaction = OnFatal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESETHAND;
  for (const Fatal& each : kFatal) {
    struct sigaction before{};
    sigaction(each.number, nullptr, &before);
    if (before.sa_handler == SIG_DFL) sigaction(each.number, &action, nullptr);  // sanitizers have their own
  }
}

Code Dispatch(const std::string& name, const Words& words) {
  for (const Command& each : kCommands) {
    if (name != each.name) continue;
    if (std::find(words.begin(), words.end(), "--help") == words.end()) return each.run(words);
    PrintUsage(name);
    return Code::kDone;
  }
  if (name == "--version") {
    Print(Version());
    return Code::kDone;
  }
  if (name == "--help") {
    PrintUsage();
    return Code::kDone;
  }
  throw Failure(Code::kUsage, name.empty() ? "no command was given" : "unknown command " + name, "see agent --help");
}

}  // namespace

void Print(const Json& result) {
  const std::string line = result.Dump() + "\n";
  WriteAll(STDOUT_FILENO, line.data(), line.size(), "to standard output");
}

int Main(const Words& words) {
  signal(SIGPIPE, SIG_IGN);
  TakeFatalSignals();
  Code code = Code::kInternal;
  std::string message;
  try {
    return static_cast<int>(
        Dispatch(words.empty() ? "" : words[0], Words(words.begin() + !words.empty(), words.end())));
  } catch (const Failure& failure) {
    code = failure.code();
    message = failure.what();
  } catch (const std::bad_alloc&) {
    code = Code::kOther;
    message = "there is not enough memory";
  } catch (const std::exception& error) {
    message = error.what();
  }
  std::fprintf(stderr, "agent: %s\n", Printable(message, true).c_str());
  return static_cast<int>(code);
}

}  // namespace agent

int main(int count, char** values) { return agent::Main(agent::Words(values + 1, values + count)); }
