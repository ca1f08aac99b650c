#include "vision/ultralytics_metadata.h"

#include <algorithm>
#include <cstdlib>
#include <map>

#include "failure.h"

namespace agent {
namespace {

// A network has as many values for each place as it has classes: far more than any is trained for.
constexpr int64_t kMostClasses = 1 << 16;
constexpr int64_t kMostPoints = 4096;

// Thrown by the parser, and told with the entry's name by whoever calls it.
struct NotPlain {};

// Texts and whole numbers, and lists, tuples and mappings of them, as Python's str() writes them.
class PythonValues {
 public:
  explicit PythonValues(const std::string& text) : text_(text) {}

  std::vector<std::string> Names() {
    std::vector<std::string> names;
    if (Peek() != '{') {
      Each(Closing(), [&] { names.push_back(Text()); });
      End();
      return names;
    }
    ++at_;
    std::map<int64_t, std::string> numbered;
    Each('}', [&] {
      const int64_t number = Number();
      if (number < 0 || number >= kMostClasses) throw NotPlain{};
      Take(':');
      numbered[number] = Text();
    });
    End();
    if (!numbered.empty()) names.resize(static_cast<size_t>(numbered.rbegin()->first) + 1);
    for (size_t i = 0; i < names.size(); ++i) {  // a number stands for a name that is missing
      const auto found = numbered.find(static_cast<int64_t>(i));
      names[i] = found == numbered.end() ? std::to_string(i) : found->second;
    }
    return names;
  }

  std::vector<int64_t> Numbers() {
    std::vector<int64_t> numbers;
    Each(Closing(), [&] { numbers.push_back(Number()); });
    End();
    return numbers;
  }

 private:
  char Peek() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  void Take(char wanted) {
    if (Peek() != wanted) throw NotPlain{};
    ++at_;
  }
  void End() {
    if (Peek() != '\0' || at_ < text_.size()) throw NotPlain{};
  }
  // Past the bracket of a list or a tuple: the one that ends it.
  char Closing() {
    const char open = Peek();
    if (open != '[' && open != '(') throw NotPlain{};
    ++at_;
    return open == '[' ? ']' : ')';
  }
  template <typename Take>
  void Each(char closing, const Take& take) {
    while (Peek() != closing) {
      take();
      if (Peek() != ',') break;
      ++at_;
    }
    this->Take(closing);
  }

  int64_t Number() {
    Peek();
    const size_t begin = at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
    if (at_ == begin || at_ - begin > 9) throw NotPlain{};
    return std::strtoll(text_.substr(begin, at_ - begin).c_str(), nullptr, 10);
  }

  std::string Text() {
    const char quote = Peek();
    if (quote != '\'' && quote != '"') throw NotPlain{};
    ++at_;
    std::string text;
    while (Next() != quote) {
      if (text_[at_ - 1] == '\\') {
        text += Escaped();
      } else {
        text += text_[at_ - 1];
      }
    }
    return text;
  }
  char Next() {
    if (at_ == text_.size()) throw NotPlain{};
    return text_[at_++];
  }
  // What stands for a character that Python's repr() does not write itself.
  std::string Escaped() {
    switch (const char c = Next()) {
      case '\\':
      case '\'':
      case '"':
        return {c};
      case 'n':
        return "\n";
      case 'r':
        return "\r";
      case 't':
        return "\t";
      case 'x':
        return Character(2);
      case 'u':
        return Character(4);
      case 'U':
        return Character(8);
      default:
        throw NotPlain{};
    }
  }
  // The character of a code of hexadecimal digits, in UTF-8.
  std::string Character(size_t digits) {
    uint32_t code = 0;
    for (size_t i = 0; i < digits; ++i) {
      const char c = Next();
      const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
      if (digit < 0) throw NotPlain{};
      code = code << 4 | static_cast<uint32_t>(digit);
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) throw NotPlain{};
    const auto byte = [](uint32_t value) { return static_cast<char>(value); };
    if (code < 0x80) return {byte(code)};
    if (code < 0x800) return {byte(0xC0 | code >> 6), byte(0x80 | (code & 0x3F))};
    if (code < 0x10000) return {byte(0xE0 | code >> 12), byte(0x80 | (code >> 6 & 0x3F)), byte(0x80 | (code & 0x3F))};
    return {byte(0xF0 | code >> 18), byte(0x80 | (code >> 12 & 0x3F)), byte(0x80 | (code >> 6 & 0x3F)),
            byte(0x80 | (code & 0x3F))};
  }

  const std::string& text_;
  size_t at_ = 0;
};

void Read(const std::string& key, const std::string& text, UltralyticsDescription* description) {
  if (key == "task") {
    if (text.empty() || !std::all_of(text.begin(), text.end(), [](char c) { return c >= 'a' && c <= 'z'; })) {
      throw NotPlain{};
    }
    description->task = text;
  } else if (key == "names") {
    description->names = PythonValues(text).Names();
  } else if (key == "kpt_shape") {
    const std::vector<int64_t> shape = PythonValues(text).Numbers();
    if (shape.size() != 2 || shape[0] < 1 || shape[0] > kMostPoints || shape[1] < 2 || shape[1] > 3) throw NotPlain{};
    description->points = {shape[0], shape[1]};
  }
}

}  // namespace

UltralyticsDescription DescribeUltralytics(const std::vector<std::pair<std::string, std::string>>& metadata) {
  UltralyticsDescription description;
  for (const auto& [key, text] : metadata) {
    try {
      Read(key, text, &description);
    } catch (const NotPlain&) {
      throw Failure(Code::kInput, "the entry '" + key + "' of the network's metadata cannot be read",
                    "it is not a value that Ultralytics writes");
    }
  }
  return description;
}

}  // namespace agent
