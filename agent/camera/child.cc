#include "camera/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <tuple>
#include <utility>

namespace agent {
namespace {

// How long a program may take to end by itself.
constexpr std::chrono::milliseconds kEnd(2000);
constexpr int kLastWords = 200;  // in milliseconds
constexpr size_t kMostMessages = 1024;

// In the child: nothing here may take a lock, since other threads of the agent may have held it.
[[noreturn]] void Become(char* const* arguments, pid_t parent, int input, int output, int errors) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // it ended before that
  for (const int each : {SIGINT, SIGTERM, SIGPIPE, SIGILL}) signal(each, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  dup2(input, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(errors, STDERR_FILENO);
  execv(arguments[0], arguments);
  _exit(127);
}

}  // namespace

std::string FindProgram(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::string folders = path ? path : "/usr/local/bin:/usr/bin:/bin";
  for (size_t begin = 0; begin <= folders.size();) {
    const size_t end = std::min(folders.find(':', begin), folders.size());
    const std::string file = folders.substr(begin, end - begin) + "/" + name;
    if (file[0] == '/' && access(file.c_str(), X_OK) == 0) return file;
    begin = end + 1;
  }
  return "";
}

Child::Child(std::vector<std::string> arguments) : BufferedReader("the output of " + arguments[0]) {
  std::vector<char*> words;
  for (std::string& argument : arguments) words.push_back(argument.data());
  words.push_back(nullptr);
  const Descriptor nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  auto [output, write_output] = Pipe();
  auto [errors, write_errors] = Pipe();
  std::tie(stop_read_, stop_write_) = Pipe();
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) Become(words.data(), parent, nothing.get(), write_output.get(), write_errors.get());
  if (pid_ < 0) throw Failure(Code::kInput, "cannot start " + arguments[0], SystemError());
  setpgid(pid_, pid_);  // whoever comes first
  output_ = std::move(output);
  errors_ = std::move(errors);
}

Child::~Child() {
  kill(-pid_, SIGTERM);
  const auto deadline = std::chrono::steady_clock::now() + kEnd;
  while (waitpid(pid_, nullptr, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > deadline) {
      kill(-pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  kill(-pid_, SIGKILL);  // what it started and left behind
}

ssize_t Child::Receive(void* data, size_t size) {
  for (;;) {
    pollfd ready[] = {{output_.get(), POLLIN, 0}, {stop_read_.get(), POLLIN, 0}, {errors_.get(), POLLIN, 0}};
    if (poll(ready, 3, -1) < 0) continue;
    if (ready[1].revents != 0) return 0;
    if (ready[2].revents != 0) KeepMessages();
    if (ready[0].revents == 0) continue;
    const ssize_t count = read(output_.get(), data, size);
    if (count > 0) return count;
    if (count < 0 && errno == EINTR) continue;
    // What it said last, though not for long: what it started may still hold this end.
    for (pollfd said{errors_.get(), POLLIN, 0}; errors_ && poll(&said, 1, kLastWords) > 0;) KeepMessages();
    return 0;
  }
}

void Child::Stop() { stop_write_ = Descriptor(); }

void Child::KeepMessages() {
  char text[512];
  const ssize_t count = read(errors_.get(), text, sizeof text);
  if (count <= 0) {
    errors_ = Descriptor();
    return;
  }
  messages_.append(text, static_cast<size_t>(count));
  if (messages_.size() > kMostMessages) messages_.erase(0, messages_.size() - kMostMessages);
}

std::string Child::Messages() const {
  std::string line;
  for (const char letter : messages_) {
    if (letter == '\n' || letter == '\r') {
      if (!line.empty() && line.back() != ' ') line += "; ";
    } else {
      line += letter >= ' ' ? letter : ' ';
    }
  }
  while (!line.empty() && (line.back() == ' ' || line.back() == ';')) line.pop_back();
  return line;
}

}  // namespace agent
