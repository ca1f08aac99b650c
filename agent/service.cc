// `agent service`: a network that follows its releases, for all programs of a user, through a Unix socket.

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "arguments.h"
#include "camera/camera.h"
#include "commands.h"
#include "demo/look.h"
#include "demo/report.h"
#include "event_log.h"
#include "interruption.h"
#include "library/network.h"
#include "machine.h"
#include "notifier.h"
#include "protocol.h"
#include "sightings.h"
#include "subnormals.h"
#include "unix_socket.h"

namespace agent {
namespace {

using std::chrono::milliseconds;
using SteadyClock = std::chrono::steady_clock;

constexpr size_t kMostClients = 64;
// How often the service looks for a new release while nobody asks for anything.
constexpr milliseconds kLook{1000};
// How long clients may take to fetch their last replies when it ends.
constexpr milliseconds kFarewell{10'000};
// A client that takes nothing of a reply for so long is let go.
constexpr time_t kReplySeconds = 60;

constexpr int kDefaultLogBytes = 1 << 20;

// The name of a release by its folder.
std::string NameOf(const std::string& folder) { return folder.substr(folder.rfind('/') + 1); }

Json About(const char* name, Json value) {
  Json about = Json::NewObject();
  return about.Set(name, std::move(value));
}

class Service {
 public:
  Service(const std::string& model, int threads, EventLog* log)
      : log_(log),
        load_ms_(MillisecondsSinceStart()),
        network_(model, threads, [this](const std::string& release, const char* error) { Switched(release, error); }) {
    load_ms_ = MillisecondsSinceStart() - load_ms_;
    Describe();
  }

  // What the log says when the service is ready.
  Json Describing() {
    Json about = About("model", network_.manifest().model);
    about.Set("release", release_).Set("threads", network_.model().threads()).Set("load_ms", load_ms_);
    return camera_.empty() ? about : about.Set("camera", camera_);
  }

  // Looks at a camera's images from now on, in a thread of its own, until the process is asked to end. Failure(kInput)
  // if the network is not one for images.
  void Watch(std::unique_ptr<Source> source) {
    network_.detector();
    camera_ = source->name();
    watcher_ = std::thread([this, source = std::move(source)] { Watching(source.get()); });
  }
  // Whether the camera gives no further image.
  bool IsBlind() const { return is_blind_.load(); }
  // Ends that; whoever watches is told nothing more.
  void WatchNoMore() {
    Interrupt();
    if (watcher_.joinable()) watcher_.join();
    sightings_.End();
  }

  // A thread for a client, unless there are too many.
  void Welcome(Descriptor client) {
    const std::lock_guard<std::mutex> lock(clients_mutex_);
    if (clients_.size() >= kMostClients) {
      Send(client.get(), Refusal(nullptr, Code::kOther, "there are " + std::to_string(kMostClients) + " clients"));
      return;
    }
    const int64_t number = ++welcomed_;
    clients_[number] = client.get();
    std::thread([this, number, socket = std::move(client)] { Serve(number, socket.get()); }).detach();
  }

  // Changes to a release that was pushed meanwhile, unless an inference is running, which looks by itself.
  void LookForRelease() {
    const std::unique_lock<std::mutex> turn(turn_, std::try_to_lock);
    if (turn) network_.Follow();
  }

  // Whether an inference has been running for longer than that.
  bool Hangs(milliseconds limit) const {
    const int64_t since = busy_since_.load();
    return since != 0 && SteadyClock::now().time_since_epoch() - milliseconds(since) > limit;
  }

  // Takes no further request; those that were sent are answered. Returns whether that is done by the deadline.
  bool Farewell(SteadyClock::time_point deadline) {
    std::unique_lock<std::mutex> lock(clients_mutex_);
    for (const auto& [number, socket] : clients_) shutdown(socket, SHUT_RD);
    return gone_.wait_until(lock, deadline, [this] { return clients_.empty(); });
  }

  int64_t requests() const { return requests_.load(); }

 private:
  void Serve(int64_t number, int socket) {
    int64_t answered = 0;
    try {
      const timeval limit{kReplySeconds, 0};
      setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
      log_->Write("connected", About("client", number));
      Greet(socket);
      RequestReader reader(socket, "the socket");
      for (;;) {
        Request request;
        try {
          if (!reader.Next(&request)) break;
        } catch (const std::exception& error) {
          // Nobody can tell where the next request begins.
          Send(socket, Refusal(request.id, Code::kInput, std::string("that is no request: ") + error.what()));
          break;
        }
        const bool goes_on = Answer(socket, &reader, request);
        ++answered;
        ++requests_;
        if (!goes_on) break;
      }
    } catch (const std::exception& error) {
      log_->Write("lost", About("client", number).Set("error", error.what()));
    }
    log_->Write("disconnected", About("client", number).Set("requests", answered));
    const std::lock_guard<std::mutex> lock(clients_mutex_);
    clients_.erase(number);
    gone_.notify_all();
  }

  void Greet(int socket) {
    const std::lock_guard<std::mutex> turn(turn_);
    const Model& model = network_.model();
    Json greeting = Greeting(network_.manifest(), model.threads(), load_ms_, model.Device());
    greeting.Set("release", release_);
    Send(socket, camera_.empty() ? greeting : greeting.Set("camera", camera_));
  }

  void Watching(Source* source) {
    try {
      int number = 0;
      while (std::optional<Shot> shot = source->Next()) {
        Json about = See(*shot, number);
        number = number == INT_MAX ? 0 : number + 1;
        sightings_.Put(std::make_shared<const Sighting>(std::move(about), std::move(shot->picture)));
      }
    } catch (const std::exception& error) {
      log_->Write("failed", About("error", error.what()));
    }
    is_blind_ = true;
  }

  // What the release that is in use sees in an image.
  Json See(const Shot& shot, int number) {
    const std::lock_guard<std::mutex> turn(turn_);
    const Busy busy(&busy_since_);
    network_.Follow();
    network_.SetEntry(0);
    const SubnormalsFlushed flushed;
    const Outcome outcome = Look(shot, number, network_.detector(), &network_.model(), 0);
    return Described(outcome, false).Set("release", release_);
  }

  // Sends what the camera sees until the client is gone, which is told by Failure(kOutput), or the camera ends.
  void Show(int socket, bool images) {
    std::shared_ptr<const Sighting> seen;
    while ((seen = sightings_.Next(seen))) {
      Json about = seen->about();
      const std::string jpeg = images ? seen->Jpeg() : "";
      if (images) about.Set("bytes", Json::Size(jpeg.size()));
      Send(socket, about);
      WriteAll(socket, jpeg.data(), jpeg.size(), "an image");
    }
  }

  // Reads the request's bytes and replies. Returns whether there is more to come. Throws where the client is lost.
  bool Answer(int socket, RequestReader* reader, const Request& request) {
    std::vector<char> inputs;
    int64_t unread = request.bytes;
    std::vector<char> outputs;
    Json reply;
    bool goes_on = true;
    std::optional<bool> watches;  // with images or without
    try {
      const std::string& command = request.body.at("command").text();
      if (command == "run") {
        const size_t entry = EntryOf(request);
        RequireBytes(InputBytes(entry), request.bytes);
        inputs.resize(static_cast<size_t>(request.bytes));
        unread = 0;
        reader->Bytes(inputs.data(), inputs.size());
        reply = Run(entry, inputs, request.id, &outputs);
      } else if (command == "status") {
        reply = Reply(request.id).Set("requests", requests()).Set("release", ReleaseInUse());
        reply.Set("memory", ProcessMemory()).Set("temperature_c", Temperature());
      } else if (command == "watch") {
        if (camera_.empty()) throw Failure(Code::kInput, "this service has no camera");
        const Json* images = request.body.find("images");
        watches = images && images->truth();
        reply = Reply(request.id);
      } else if (command == "quit") {
        reply = Reply(request.id);
        goes_on = false;
      } else {
        throw Failure(Code::kInput, "unknown command '" + command + "'", "a service has run, watch, status and quit");
      }
    } catch (const JsonError& error) {
      reply = Refusal(request.id, Code::kInput, error.what());
    } catch (const Failure& failure) {
      reply = Refusal(request.id, failure.code(), failure.what());
      if (failure.code() != Code::kInput) log_->Write("failed", About("error", failure.what()));
    }
    reader->Bytes(nullptr, static_cast<size_t>(unread));
    Send(socket, reply);
    WriteAll(socket, outputs.data(), outputs.size(), "a reply");
    if (watches) Show(socket, *watches);
    return goes_on && !watches;
  }

  // One inference, of the release that is in use when it begins.
  Json Run(size_t entry, const std::vector<char>& inputs, const Json& id, std::vector<char>* outputs) {
    const std::lock_guard<std::mutex> turn(turn_);
    const Busy busy(&busy_since_);
    network_.Follow();
    RequireBytes(InputBytes(entry), static_cast<int64_t>(inputs.size()));  // of another release by now, maybe
    network_.SetEntry(entry);
    const char* values = inputs.data();
    for (size_t i = 0; i < network_.model().inputs().size(); ++i) {
      const size_t bytes = network_.model().inputs()[i].bytes;
      network_.SetInput(i, values, bytes);
      values += bytes;
    }
    const auto before = SteadyClock::now();
    network_.Infer();
    const std::chrono::duration<double, std::milli> taken = SteadyClock::now() - before;
    for (size_t i = 0; i < network_.model().outputs().size(); ++i) {
      const auto* begin = static_cast<const char*>(network_.Output(i));
      outputs->insert(outputs->end(), begin, begin + network_.model().outputs()[i].bytes);
    }
    Json reply = Reply(id);
    return reply.Set("ms", taken.count()).Set("release", release_).Set("bytes", Json::Size(outputs->size()));
  }

  // Notes what is in use. Whoever calls has the turn, or is the only one.
  void Describe() {
    const std::lock_guard<std::mutex> lock(described_);
    release_ = NameOf(network_.folder());
    input_bytes_.clear();
    for (const Entry& entry : network_.manifest().entries) input_bytes_.push_back(BytesOf(entry.inputs));
  }

  void Switched(const std::string& folder, const char* error) {
    if (error) {
      log_->Write("refused", About("release", NameOf(folder)).Set("error", error));
      return;
    }
    const std::string before = release_;
    Describe();
    log_->Write("switched", About("release", release_).Set("before", before));
  }

  size_t EntryOf(const Request& request) {
    const Json* given = request.body.find("entry");
    const int64_t entry = given ? given->integer() : 0;
    const std::lock_guard<std::mutex> lock(described_);
    if (entry < 0 || entry >= static_cast<int64_t>(input_bytes_.size())) throw JsonError("entry is out of range");
    return static_cast<size_t>(entry);
  }

  // A release may have fewer entries than the one before.
  int64_t InputBytes(size_t entry) {
    const std::lock_guard<std::mutex> lock(described_);
    if (entry >= input_bytes_.size()) throw Failure(Code::kInput, "the release in use has no such entry");
    return input_bytes_[entry];
  }

  std::string ReleaseInUse() {
    const std::lock_guard<std::mutex> lock(described_);
    return release_;
  }

  static void RequireBytes(int64_t wanted, int64_t given) {
    if (wanted == given) return;
    throw Failure(Code::kInput, "the inputs have " + std::to_string(wanted) + " bytes",
                  std::to_string(given) + " were announced");
  }

  // While it is there, an inference is running.
  class Busy {
   public:
    explicit Busy(std::atomic<int64_t>* since) : since_(since) {
      *since_ = std::chrono::duration_cast<milliseconds>(SteadyClock::now().time_since_epoch()).count();
    }
    ~Busy() { *since_ = 0; }

   private:
    std::atomic<int64_t>* since_;
  };

  EventLog* log_;
  double load_ms_;

  std::mutex turn_;  // whoever has it uses the network
  Network network_;
  std::atomic<int64_t> busy_since_{0};  // in milliseconds of the steady clock; 0: nobody infers

  std::string camera_;  // empty if there is none
  std::thread watcher_;
  std::atomic<bool> is_blind_{false};
  Sightings sightings_;

  std::mutex described_;  // of what follows, which is written by whoever has the turn
  std::string release_;
  std::vector<int64_t> input_bytes_;  // of each entry

  std::mutex clients_mutex_;
  std::condition_variable gone_;
  std::map<int64_t, int> clients_;  // their sockets
  int64_t welcomed_ = 0;
  std::atomic<int64_t> requests_{0};
};

// SIGTERM and SIGINT, from now on for all threads, as a descriptor that can be waited for.
Descriptor TakeSignals() {
  sigset_t ending;
  sigemptyset(&ending);
  sigaddset(&ending, SIGTERM);
  sigaddset(&ending, SIGINT);
  pthread_sigmask(SIG_BLOCK, &ending, nullptr);
  Descriptor signals(signalfd(-1, &ending, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals) throw Failure(Code::kOther, "signals cannot be waited for", SystemError());
  return signals;
}

// Welcomes clients until a signal comes, or the camera has no further image.
void Loop(Service* service, const UnixListener& listener, int signals, const Notifier& notifier) {
  milliseconds look = kLook;
  if (notifier.watchdog()) look = std::min(look, *notifier.watchdog() / 2);
  for (;;) {
    pollfd ready[] = {{listener.get(), POLLIN, 0}, {signals, POLLIN, 0}};
    poll(ready, 2, static_cast<int>(look.count()));
    if (ready[1].revents || service->IsBlind()) return;
    if (ready[0].revents) {
      if (Descriptor client = listener.Accept()) service->Welcome(std::move(client));
    }
    service->LookForRelease();
    // A network that hangs is to be ended by systemd, which then hears nothing.
    if (notifier.watchdog() && !service->Hangs(*notifier.watchdog())) notifier.Tell("WATCHDOG=1");
  }
}

}  // namespace

Code ServiceCommand(const Words& words) {
  const Arguments arguments(words, {"socket", "threads", "log", "log-bytes"}, {}, {"camera"});
  const std::string& model = arguments.Only("model");
  const int threads = arguments.Integer("threads", 0, 1, 1 << 20);
  const int log_bytes = arguments.Integer("log-bytes", kDefaultLogBytes, 1 << 12, 1 << 30);
  if (!arguments.Has("socket")) throw Failure(Code::kUsage, "--socket PATH is missing");

  const Descriptor signals = TakeSignals();
  // What a library prints goes to standard error.
  Descriptor output(dup(STDOUT_FILENO));
  if (!output || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
    throw Failure(Code::kOutput, "cannot write to standard output", SystemError());
  }
  EventLog log = arguments.Has("log") ? EventLog(arguments.Text("log"), static_cast<uint64_t>(log_bytes))
                                      : EventLog(std::move(output));
  const Notifier notifier;
  // Clients' threads may outlive a farewell that takes too long: the process ends without taking it apart.
  auto* service = new Service(model, threads, &log);
  if (arguments.Has("camera")) {
    CameraWish wish;
    wish.jpeg = true;
    service->Watch(SourceOfCamera(OpenCamera(arguments.Text("camera"), wish)));
  }
  UnixListener listener(arguments.Text("socket"));
  log.Write("ready", service->Describing().Set("socket", arguments.Text("socket")));
  notifier.Tell("READY=1");
  Loop(service, listener, signals.get(), notifier);
  notifier.Tell("STOPPING=1");
  listener.Close();
  const Code code = service->IsBlind() ? Code::kInput : Code::kDone;
  service->WatchNoMore();
  const bool done = service->Farewell(SteadyClock::now() + kFarewell);
  log.Write("ended", About("requests", service->requests()));
  if (!done) _exit(static_cast<int>(code));
  delete service;
  return code;
}

}  // namespace agent
