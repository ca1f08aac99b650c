// `agent serve`: one process that keeps a network loaded, and answers requests on standard input.

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>

#include "arguments.h"
#include "commands.h"
#include "files.h"
#include "machine.h"
#include "model.h"
#include "replies.h"
#include "statistics.h"

namespace agent {
namespace {

constexpr int kProtocol = 1;
constexpr size_t kMaximumLine = 65536;
constexpr int64_t kMaximumBytes = int64_t{1} << 30;
constexpr int64_t kMaximumCount = 1'000'000;

// Standard input as lines and counted bytes.
class Reader {
 public:
  // A line without its newline; nothing at the end of the input. Failure(kInput) if it ends within the line, or if the
  // line is too long.
  std::optional<std::string> Line() {
    std::string line;
    for (;;) {
      if (begin_ == end_ && !Fill()) {
        if (line.empty()) return std::nullopt;
        throw Failure(Code::kInput, "the input ended within a request");
      }
      const char* begin = buffer_ + begin_;
      const char* newline = std::find(begin, static_cast<const char*>(buffer_ + end_), '\n');
      line.append(begin, newline);
      begin_ = static_cast<size_t>(newline - buffer_);
      if (line.size() >= kMaximumLine) throw Failure(Code::kInput, "a request's line is longer than 65536 bytes");
      if (begin_ < end_) {
        ++begin_;
        return line;
      }
    }
  }

  // Exactly `size` bytes, to `data` or to nowhere. Failure(kInput) if the input ends before.
  void Bytes(void* data, size_t size) {
    auto* target = static_cast<char*>(data);
    while (size > 0) {
      if (begin_ == end_ && !Fill()) throw Failure(Code::kInput, "the input ended within a request's bytes");
      const size_t count = std::min(size, end_ - begin_);
      if (target) target = std::copy_n(buffer_ + begin_, count, target);
      begin_ += count;
      size -= count;
    }
  }

 private:
  bool Fill() {
    ssize_t count;
    do {
      count = read(STDIN_FILENO, buffer_, sizeof buffer_);
    } while (count < 0 && errno == EINTR);
    if (count < 0) throw Failure(Code::kInput, "cannot read standard input", SystemError());
    begin_ = 0;
    end_ = static_cast<size_t>(count);
    return count > 0;
  }

  char buffer_[65536];
  size_t begin_ = 0;
  size_t end_ = 0;
};

class Server {
 public:
  Server(Model* model, const std::vector<Entry>& entries, Descriptor output)
      : first_(model), model_(model), entries_(entries), output_(std::move(output)), others_(entries.size()) {}

  void Greet(const Manifest& manifest, int threads, double load_ms) {
    const auto described = [](const std::vector<TensorSpec>& specs) {
      Json json{Json::Array{}};
      for (const TensorSpec& spec : specs) json.Add(spec.Describe());
      return json;
    };
    const Json inputs = described(model_->inputs());
    const Json outputs = described(model_->outputs());
    Json greeting = Json::NewObject();
    greeting.Set("ready", true).Set("protocol", kProtocol).Set("model", manifest.model).Set("board", manifest.board);
    greeting.Set("threads", threads).Set("load_ms", load_ms).Set("inputs", inputs).Set("outputs", outputs);
    if (const std::optional<std::string> device = model_->Device()) greeting.Set("device", *device);
    if (entries_.size() > 1) {
      Json further{Json::Array{}};
      for (size_t i = 1; i < entries_.size(); ++i) {
        Json entry = Json::NewObject();
        entry.Set("inputs", described(entries_[i].inputs)).Set("outputs", described(entries_[i].outputs));
        further.Add(std::move(entry));
      }
      greeting.Set("further", std::move(further));
    }
    Send(greeting);
  }

  // Serves until the input ends or a request says so.
  void Loop() {
    for (;;) {
      Json request;
      Json id;
      int64_t bytes = 0;
      try {
        const std::optional<std::string> line = reader_->Line();
        if (!line) return;
        request = ParseJson(*line);
        if (const Json* given = request.find("bytes")) bytes = given->integer();
        if (const Json* given = request.find("id")) id = *given;
        if (bytes < 0 || bytes > kMaximumBytes) throw JsonError("an impossible number of bytes");
      } catch (const JsonError& error) {
        // Nobody can tell where the next request begins.
        Refuse(id, Code::kInput, std::string("that is no request: ") + error.what());
        throw Failure(Code::kInput, "a request is no request", error.what());
      } catch (const Failure& failure) {
        Refuse(id, failure.code(), failure.what());
        throw;
      }
      ++requests_;
      if (!Answer(request, id, bytes)) return;
    }
  }

 private:
  // Reads the request's bytes and replies. Returns whether there is more to come.
  bool Answer(const Json& request, const Json& id, int64_t bytes) {
    int64_t unread = bytes;
    try {
      const std::string& command = request.at("command").text();
      if (const Work work = Inference(command)) {
        Enter(request);
        const int64_t wanted = Bytes(model_->inputs());
        if (bytes != wanted) {
          throw Failure(Code::kInput, "the inputs have " + std::to_string(wanted) + " bytes",
                        std::to_string(bytes) + " were announced");
        }
        for (size_t i = 0; i < model_->inputs().size(); ++i) {
          reader_->Bytes(model_->Input(i), model_->inputs()[i].bytes);
        }
        unread = 0;
        (this->*work)(request, id);
        return true;
      }
      Discard(&unread);
      if (command == "status") {
        Json reply = Reply(id);
        Send(reply.Set("requests", requests_).Set("memory", ProcessMemory()).Set("temperature_c", Temperature()));
        return true;
      }
      if (command == "quit") {
        Send(Reply(id));
        return false;
      }
      throw Failure(Code::kInput, "unknown command '" + command + "'");
    } catch (const JsonError& error) {
      Discard(&unread);
      Refuse(id, Code::kInput, error.what());
    } catch (const Failure& failure) {
      if (failure.code() == Code::kOutput) throw;
      Discard(&unread);
      Refuse(id, failure.code(), failure.what());
    }
    return true;
  }

  static int64_t Bytes(const std::vector<TensorSpec>& specs) {
    int64_t bytes = 0;
    for (const TensorSpec& spec : specs) bytes += static_cast<int64_t>(spec.bytes);
    return bytes;
  }

  // Turns to the entry that a request names, whose inputs and workspace are there from its first request on.
  void Enter(const Json& request) {
    const Json* given = request.find("entry");
    const int64_t entry = given ? given->integer() : 0;
    if (entry < 0 || entry >= static_cast<int64_t>(entries_.size())) throw JsonError("entry is out of range");
    const auto place = static_cast<size_t>(entry);
    if (place > 0 && !others_[place]) others_[place] = std::make_unique<Model>(*first_, entries_[place]);
    model_ = place > 0 ? others_[place].get() : first_;
  }

  using Work = void (Server::*)(const Json& request, const Json& id);
  // What answers a command that comes with inputs; null for others.
  static Work Inference(const std::string& command) {
    if (command == "run") return &Server::Run;
    if (command == "measure") return &Server::Measured;
    if (command == "measure-end-to-end") return &Server::MeasuredEndToEnd;
    if (command == "profile") return &Server::Profiled;
    return nullptr;
  }

  void Run(const Json&, const Json& id) {
    const auto before = MillisecondsSinceStart();
    model_->Run();
    const double ms = MillisecondsSinceStart() - before;
    Send(Reply(id).Set("ms", ms).Set("bytes", Json(Bytes(model_->outputs()))));
    for (size_t i = 0; i < model_->outputs().size(); ++i) {
      WriteAll(output_.get(), model_->Output(i), model_->outputs()[i].bytes, "a reply");
    }
  }

  void Measured(const Json& request, const Json& id) {
    const int repeat = Count(request, "repeat", 1, 1);
    const int number = Count(request, "number", 1, 1);
    Json reply = Reply(id);
    AddStatistics(Measure(model_, repeat, number, Count(request, "warmup", 0, 0)), &reply);
    Send(reply);
  }

  void MeasuredEndToEnd(const Json& request, const Json& id) {
    const int repeat = Count(request, "repeat", 1, 1);
    const int warmup = Count(request, "warmup", 0, 0);
    std::vector<double> runs_ms;
    std::vector<double> kernels_ms;
    for (int i = 0; i < warmup; ++i) model_->EndToEndRun();
    for (int i = 0; i < repeat; ++i) {
      const EndToEnd times = model_->EndToEndRun();
      runs_ms.push_back(times.ms);
      if (times.kernels_ms) kernels_ms.push_back(*times.kernels_ms);
    }
    Json reply = Reply(id);
    AddStatistics(runs_ms, &reply);
    if (!kernels_ms.empty()) reply.Set("kernels_ms", Json(Json::Array(kernels_ms.begin(), kernels_ms.end())));
    Send(reply);
  }

  void Profiled(const Json& request, const Json& id) {
    const int repeat = Count(request, "repeat", 1, 1);
    Json functions = Json::NewObject();
    for (const auto& [name, times_ms] : model_->FunctionTimes(repeat, Count(request, "warmup", 0, 0))) {
      functions.Set(name, Json(Json::Array(times_ms.begin(), times_ms.end())));
    }
    Send(Reply(id).Set("functions", functions));
  }

  static int Count(const Json& request, const char* name, int64_t otherwise, int64_t least) {
    const Json* given = request.find(name);
    const int64_t value = given ? given->integer() : otherwise;
    if (value < least || value > kMaximumCount) throw JsonError(std::string(name) + " is out of range");
    return static_cast<int>(value);
  }

  static Json Reply(const Json& id, bool ok = true) {
    Json reply = Json::NewObject();
    if (!id.is_null()) reply.Set("id", id);
    return reply.Set("ok", ok);
  }
  void Refuse(const Json& id, Code code, const std::string& error) {
    Json reply = Reply(id, false);
    Send(reply.Set("code", static_cast<int>(code)).Set("error", error));
  }
  void Send(const Json& reply) {
    const std::string line = reply.Dump() + "\n";
    WriteAll(output_.get(), line.data(), line.size(), "a reply");
  }
  void Discard(int64_t* unread) {
    const auto size = static_cast<size_t>(*unread);
    *unread = 0;
    reader_->Bytes(nullptr, size);
  }

  Model* first_;
  Model* model_;  // of the entry that is in use
  const std::vector<Entry>& entries_;
  Descriptor output_;
  std::vector<std::unique_ptr<Model>> others_;  // of the first there is none
  std::unique_ptr<Reader> reader_ = std::make_unique<Reader>();
  int64_t requests_ = 0;
};

}  // namespace

Code ServeCommand(const Words& words) {
  const Arguments arguments(words, {"threads"});
  const int asked = arguments.Integer("threads", 0, 1, static_cast<int>(kMaximumCount));
  const Package package(arguments.Only("package"));
  const int threads = ChooseThreads(asked, package.manifest().threads);
  Descriptor output = TakeStandardOutput();
  EndWithReader(output.get());
  const double before_ms = MillisecondsSinceStart();
  Model model(package, threads);
  Server server(&model, package.manifest().entries, std::move(output));
  server.Greet(package.manifest(), threads, MillisecondsSinceStart() - before_ms);
  server.Loop();
  return Code::kDone;
}

}  // namespace agent
