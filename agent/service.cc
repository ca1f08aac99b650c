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
#include "event_log.h"
#include "interruption.h"
#include "machine.h"
#include "notifier.h"
#include "protocol.h"
#include "served_network.h"
#include "shared_memory.h"
#include "sightings.h"
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

constexpr char kKnown[] = "a service has run, detect, share, status, watch and quit";

// What a client has.
struct Client {
  int socket;
  SharingReader reader;
  std::optional<SharedMemory> memory;
};

// A reply, and the bytes that follow it.
struct Answer {
  Json reply;
  std::vector<char> content;
  bool goes_on = true;
  std::optional<bool> watches;  // with images or without
};

int64_t NumberOf(const Json& request, const char* name, int64_t otherwise) {
  const Json* given = request.find(name);
  return given ? given->integer() : otherwise;
}

// What a request says of a frame but its pixels. JsonError and Failure(kInput) for one that cannot be.
CameraFrame FrameOf(const Json& request) {
  const auto side = [&](const char* name) {
    const int64_t value = request.at(name).integer();
    if (value < 1 || value > kLongestSide) throw JsonError(std::string(name) + " is no side of a frame");
    return static_cast<int>(value);
  };
  const std::string& format = request.at("format").text();
  const std::optional<PixelFormat> pixels = PixelFormatOf(format);
  if (!pixels) throw JsonError("frames of '" + format + "' are not known here");
  const int64_t stride = NumberOf(request, "stride", 0);
  if (stride < 0) throw JsonError("stride is below zero");
  return {nullptr, side("height"), side("width"), static_cast<size_t>(stride), *pixels};
}

class Service {
 public:
  Service(const std::string& model, int threads, EventLog* log) : log_(log), network_(model, threads, log) {}

  // What the log says when the service is ready.
  Json Describing() {
    Json about = network_.Describing();
    return camera_.empty() ? about : about.Set("camera", camera_);
  }
  ServedNetwork& network() { return network_; }

  // Looks at a camera's images from now on, in a thread of its own, until the process is asked to end. Failure(kInput)
  // if the network is not one for images.
  void Watch(std::unique_ptr<Source> source) {
    network_.RequireDetector();
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
      Client client{socket, {socket, "the socket"}, std::nullopt};
      for (;;) {
        Request request;
        try {
          if (!client.reader.Next(&request)) break;
        } catch (const std::exception& error) {
          // Nobody can tell where the next request begins.
          Send(socket, Refusal(request.id, Code::kInput, std::string("that is no request: ") + error.what()));
          break;
        }
        const bool goes_on = Respond(&client, request);
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
    Json greeting = network_.Greeting();
    Send(socket, camera_.empty() ? greeting : greeting.Set("camera", camera_));
  }

  void Watching(Source* source) {
    try {
      int number = 0;
      while (std::optional<Shot> shot = source->Next()) {
        Json about = network_.See(*shot, number);
        number = number == INT_MAX ? 0 : number + 1;
        sightings_.Put(std::make_shared<const Sighting>(std::move(about), std::move(shot->picture)));
      }
    } catch (const std::exception& error) {
      log_->Write("failed", About("error", error.what()));
    }
    is_blind_ = true;
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
  bool Respond(Client* client, const Request& request) {
    Answer answer;
    int64_t unread = request.bytes;
    // What follows the request, of a size that is known to be right by now.
    const auto content = [&] {
      std::vector<char> read(static_cast<size_t>(request.bytes));
      unread = 0;
      client->reader.Bytes(read.data(), read.size());
      return read;
    };
    try {
      Do(request.body.at("command").text(), client, request, content, &answer);
    } catch (const JsonError& error) {
      answer = {Refusal(request.id, Code::kInput, error.what()), {}, true, {}};
    } catch (const Failure& failure) {
      answer = {Refusal(request.id, failure.code(), failure.what()), {}, true, {}};
      if (failure.code() != Code::kInput) log_->Write("failed", About("error", failure.what()));
    }
    client->reader.Bytes(nullptr, static_cast<size_t>(unread));
    Send(client->socket, answer.reply);
    WriteAll(client->socket, answer.content.data(), answer.content.size(), "a reply");
    if (answer.watches) Show(client->socket, *answer.watches);
    return answer.goes_on && !answer.watches;
  }

  template <typename Content>
  void Do(const std::string& command, Client* client, const Request& request, const Content& content, Answer* answer) {
    answer->reply = Reply(request.id);
    if (command == "run") {
      Run(client, request, content, answer);
    } else if (command == "detect") {
      CameraFrame frame = FrameOf(request.body);
      const size_t bytes = FrameBytes(frame.height, frame.width, frame.stride, frame.format);
      const std::vector<char> sent = Inputs(client, request, static_cast<int64_t>(bytes), content, &frame.pixels);
      network_.Detect(frame, &answer->reply);
    } else if (command == "share") {
      client->memory.emplace(client->reader.TakeDescriptor(), request.body.at("size").integer());
    } else if (command == "status") {
      answer->reply.Set("requests", requests()).Set("release", network_.release());
      answer->reply.Set("memory", ProcessMemory()).Set("temperature_c", Temperature());
    } else if (command == "watch") {
      if (camera_.empty()) throw Failure(Code::kInput, "this service has no camera");
      const Json* images = request.body.find("images");
      answer->watches = images && images->truth();
    } else if (command == "quit") {
      answer->goes_on = false;
    } else {
      throw Failure(Code::kInput, "unknown command '" + command + "'", kKnown);
    }
  }

  template <typename Content>
  void Run(Client* client, const Request& request, const Content& content, Answer* answer) {
    const int64_t entry = NumberOf(request.body, "entry", 0);
    const int64_t bytes = network_.InputBytes(entry);
    const uint8_t* values;
    const std::vector<char> sent = Inputs(client, request, bytes, content, &values);
    if (const Json* place = request.body.find("outputs_at")) {
      const int64_t room = network_.OutputBytes(entry);
      network_.Run(entry, values, bytes, MemoryOf(*client).At(place->integer(), room), room, &answer->reply);
    } else {
      network_.Run(entry, values, bytes, &answer->content, &answer->reply);
    }
  }

  // Where `bytes` bytes of inputs lie: in shared memory, if the request says so, or in what is returned.
  template <typename Content>
  static std::vector<char> Inputs(Client* client, const Request& request, int64_t bytes, const Content& content,
                                  const uint8_t** begin) {
    if (const Json* place = request.body.find("at")) {
      *begin = MemoryOf(*client).At(place->integer(), bytes);
      return {};
    }
    RequireInputBytes(bytes, request.bytes);
    std::vector<char> sent = content();
    *begin = reinterpret_cast<const uint8_t*>(sent.data());
    return sent;
  }

  static const SharedMemory& MemoryOf(const Client& client) {
    if (!client.memory) throw Failure(Code::kInput, "no memory was shared", "the command 'share' comes before");
    return *client.memory;
  }

  EventLog* log_;
  ServedNetwork network_;

  std::string camera_;  // empty if there is none
  std::thread watcher_;
  std::atomic<bool> is_blind_{false};
  Sightings sightings_;

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
    service->network().LookForRelease();
    // A network that hangs is to be ended by systemd, which then hears nothing.
    if (notifier.watchdog() && !service->network().Hangs(*notifier.watchdog())) notifier.Tell("WATCHDOG=1");
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
