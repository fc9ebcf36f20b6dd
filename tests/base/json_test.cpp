// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/base/json.h"

#include <fstream>
#include <limits>
#include <sstream>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "spdkfac/base/error.h"
#include "support/temporary_folder.h"

namespace spdkfac {
namespace {

namespace fs = std::filesystem;

// The message of the ConfigError that `call` throws.
template <class Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "(no error)";
}

std::string parse_message(std::string_view text) {
  return message_of([&] { parse_json(text, "f.json"); });
}

std::string repeat(std::string_view part, std::size_t count) {
  std::string text;
  text.reserve(part.size() * count);
  for (std::size_t i = 0; i < count; ++i) text += part;
  return text;
}

TEST(ParseJson, KeepsValuesAndTheOrderOfKeys) {
  const std::string text = R"({"z":[1,-2,2.5,true,null],"a":{"s":"\u00e9\n"}})";
  EXPECT_EQ(parse_json(text, "f.json").dump(),
            "{\"z\":[1,-2,2.5,true,null],\"a\":{\"s\":\"é\\n\"}}");
}

TEST(ParseJson, AcceptsEveryKindOfTopLevelValueAndSurroundingSpace) {
  for (const char* text : {"{}", "[]", "3", "-1.5e3", "\"s\"", "true", "false", "null"}) {
    EXPECT_EQ(parse_json(std::string(" \n\t") + text + "\r\n", "f.json"), Json::parse(text));
  }
}

struct BadText {
  const char* name;
  std::string text;
  std::string message;
};
void PrintTo(const BadText& bad, std::ostream* out) { *out << bad.name; }

class ParseJsonRejects : public testing::TestWithParam<BadText> {};

TEST_P(ParseJsonRejects, WithAMessageThatSaysWhereAndWhat) {
  EXPECT_EQ(parse_message(GetParam().text), GetParam().message);
}

const std::string kAround = "; check the commas, quotes and brackets around it";

INSTANTIATE_TEST_SUITE_P(
    Syntax, ParseJsonRejects,
    testing::Values(
        BadText{"Empty", "", "f.json: line 1, column 1: the text is empty; write one JSON value"},
        BadText{"Blank", " \n ",
                "f.json: line 1, column 1: the text is empty; write one JSON value"},
        BadText{"Truncated", "{\"a\": [1,\n 2",
                "f.json: line 2, column 3: the text ends too early; check that it is complete"},
        BadText{"TruncatedInsideCharacter", "\"\xC3",
                "f.json: line 1, column 3: the text ends too early; check that it is complete"},
        BadText{"LineComment", "{} // no",
                "f.json: line 1, column 4: comments are not allowed; remove them"},
        BadText{"BlockComment", "[1, /* no */ 2]",
                "f.json: line 1, column 5: comments are not allowed; remove them"},
        BadText{"TrailingBracket", "{}\n}",
                "f.json: line 2, column 1: text after the end of the document; remove it"},
        BadText{"TrailingString", "{} \"a\\\"b\"",
                "f.json: line 1, column 4: text after the end of the document; remove it"},
        BadText{"TrailingHalfString", "{} \"a",
                "f.json: line 1, column 6: text after the end of the document; remove it"},
        BadText{"ZeroByte", std::string("{}\0x", 4),
                "f.json: line 1, column 3: zero byte; check that this is a JSON text"},
        BadText{"InvalidUtf8", "[\"a\xFF\"]",
                "f.json: line 1, column 4: invalid UTF-8; save the text as UTF-8"},
        BadText{"OverlongUtf8", "[\"\xC0\x80\"]",
                "f.json: line 1, column 3: invalid UTF-8; save the text as UTF-8"},
        BadText{"Utf8OutsideString", "[é]",
                "f.json: line 1, column 2: unexpected byte 0xC3" + kAround},
        BadText{"LineBreakInString", "[\"a\nb\"]",
                "f.json: line 1, column 4: line break or control character inside a string; "
                "escape it as in \\n"},
        BadText{"BadEscape", R"(["\x"])",
                "f.json: line 1, column 4: invalid escape inside a string; "
                "write a backslash as \\\\"},
        BadText{"LoneSurrogate", R"(["\ud800"])",
                "f.json: line 1, column 9: invalid escape inside a string; "
                "write a backslash as \\\\"}),
    [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Tokens, ParseJsonRejects,
    testing::Values(
        BadText{"Overflow", "[1, 1e999]",
                "f.json: line 1, column 5: number \"1e999\" is out of range; "
                "numbers are 64-bit floats"},
        BadText{"NegativeOverflow", "-1e999",
                "f.json: line 1, column 1: number \"-1e999\" is out of range; "
                "numbers are 64-bit floats"},
        BadText{"Nan", "[NaN]",
                "f.json: line 1, column 2: NaN is not a JSON number; write a finite number"},
        BadText{"LowerCaseNan", "[nan]",
                "f.json: line 1, column 2: nan is not a JSON number; write a finite number"},
        BadText{"Infinity", "{\"a\": Infinity}",
                "f.json: line 1, column 7: Infinity is not a JSON number; write a finite number"},
        BadText{"MinusInfinity", "[-Infinity]",
                "f.json: line 1, column 2: -Infinity is not a JSON number; write a finite number"},
        BadText{"LeadingZero", "[01]", "f.json: line 1, column 2: unexpected \"01\"" + kAround},
        BadText{"NoDigitAfterPoint", "[1.]",
                "f.json: line 1, column 2: unexpected \"1.\"" + kAround},
        BadText{"HalfALiteral", "[tru]", "f.json: line 1, column 2: unexpected \"tru\"" + kAround},
        BadText{"MissingComma", "[1 2]", "f.json: line 1, column 4: unexpected \"2\"" + kAround},
        BadText{"MissingColon", R"({"a" "b"})",
                "f.json: line 1, column 6: unexpected string" + kAround},
        BadText{"WrongBracket", "[1}", "f.json: line 1, column 3: unexpected '}'" + kAround},
        BadText{"StrangeCharacter", "[true@]",
                "f.json: line 1, column 6: unexpected '@'" + kAround},
        BadText{"StrangeCharacterAfterNumber", "[1@]",
                "f.json: line 1, column 3: unexpected '@'" + kAround},
        BadText{
            "SingleQuotes", "['a']",
            "f.json: line 1, column 2: unexpected single quote; write strings in double quotes"},
        BadText{"BareKey", "{\n  abc: 1}",
                "f.json: line 2, column 3: expected a key; write it in double quotes"},
        BadText{"NumberAsKey", "{12: 1}",
                "f.json: line 1, column 2: expected a key; write it in double quotes"},
        BadText{"TrailingCommaInArray", "[1, 2, ]",
                "f.json: line 1, column 6: trailing comma; remove it"},
        BadText{"TrailingCommaInObject", "{\"a\": 1,\n}",
                "f.json: line 1, column 8: trailing comma; remove it"}),
    [](const auto& test) { return test.param.name; });

TEST(ParseJson, NamesADuplicateKeyAndItsPlace) {
  EXPECT_EQ(parse_message("{\"a\":1,\n  \"a\":2}"),
            "f.json: line 2, column 3: duplicate key \"a\" in the top-level object; "
            "remove one of them");
  EXPECT_EQ(parse_message(R"({"layers":[{},{},{},{"d_a":1,"d_g":2,"d_a":3}]})"),
            "f.json: line 1, column 38: duplicate key \"d_a\" in layers[3]; remove one of them");
  EXPECT_EQ(parse_message(R"([[{"x":{"a b":{"k":1,"\u006b":2}}}]])"),
            "f.json: line 1, column 22: duplicate key \"k\" in [0][0].x[\"a b\"]; "
            "remove one of them");
  EXPECT_EQ(parse_message(R"({"q\"\\":1,"q\"\\":2})"),
            "f.json: line 1, column 12: duplicate key \"q\\\"\\\\\" in the top-level object; "
            "remove one of them");
}

TEST(ParseJson, FindsADuplicateKeyAtTheDeepestLevel) {
  const std::size_t around = kMaxJsonDepth - 1;
  const std::string text = repeat("[", around) + R"({"k":0,"k":0})" + repeat("]", around);
  EXPECT_EQ(parse_message(text), "f.json: line 1, column 71: duplicate key \"k\" in " +
                                     repeat("[0]", around) + "; remove one of them");
}

TEST(ParseJson, AllowsTheSameKeyInDifferentObjects) {
  EXPECT_NO_THROW(parse_json(R"({"a":{"a":1},"b":[{"a":1},{"a":2}]})", "f.json"));
}

TEST(ParseJson, ChecksAHundredThousandKeysForDuplicates) {
  std::string text = "{";
  for (int i = 0; i < 100'000; ++i) text += "\"key" + std::to_string(i) + "\":0,";
  EXPECT_EQ(parse_json(text + "\"last\":0}", "f.json").size(), 100'001U);
  EXPECT_NE(parse_message(text + "\"key7\":0}").find("duplicate key \"key7\""), std::string::npos);
}

TEST(ParseJson, TakesExactlyTheAllowedDepth) {
  const std::size_t depth = kMaxJsonDepth;
  EXPECT_NO_THROW(parse_json(repeat("[", depth) + repeat("]", depth), "f.json"));
  EXPECT_EQ(parse_message(repeat("[", depth + 1) + repeat("]", depth + 1)),
            "f.json: line 1, column 65: nested deeper than 64 levels; make it flatter");
  // 64 objects of five characters each come before the one too many.
  EXPECT_EQ(parse_message(repeat("{\"a\":", depth + 1)),
            "f.json: line 1, column 321: nested deeper than 64 levels; make it flatter");
}

TEST(ParseJson, StopsEarlyInAHundredMegabytesOfBrackets) {
  const std::string text(100'000'000, '[');
  EXPECT_EQ(parse_message(text),
            "f.json: line 1, column 65: nested deeper than 64 levels; make it flatter");
}

TEST(ParseJson, RejectsEveryPrefixOfADocument) {
  const std::string text =
      R"({"name": "né\u00e9\\", "n": [1, -2.5e+3, true, false, null], "o": {"k": {}}})";
  ASSERT_NO_THROW(parse_json(text, "f.json"));
  for (std::size_t size = 0; size < text.size(); ++size) {
    EXPECT_THROW(parse_json(text.substr(0, size), "f.json"), ConfigError) << "size " << size;
  }
}

TEST(ParseJson, NeverFailsOtherwiseThanWithAConfigErrorWhenAByteIsReplaced) {
  const std::string text = R"({"a": ["\u00e9\"", -1.5e3, true, null], "b": {"c": "ü"}})";
  for (std::size_t at = 0; at < text.size(); ++at) {
    for (int byte = 0; byte < 256; ++byte) {
      std::string changed = text;
      changed[at] = static_cast<char>(byte);
      try {
        parse_json(changed, "f.json");
      } catch (const ConfigError&) {
      }
    }
  }
}

class JsonFile : public testing::Test {
 protected:
  fs::path write(const std::string& name, const std::string& content) const {
    folder_.write(name, content);
    return folder_ / name;
  }
  static std::string read(const fs::path& path) {
    std::ostringstream content;
    content << std::ifstream(path, std::ios::binary).rdbuf();
    return content.str();
  }
  static std::string read_message(const fs::path& path) {
    return message_of([&] { read_json_file(path); });
  }
  static std::string write_message(const fs::path& path) {
    return message_of([&] { write_file_atomically(path, "content"); });
  }
  std::size_t file_count() const {
    const fs::directory_iterator files(folder_.path());
    return static_cast<std::size_t>(std::distance(begin(files), end(files)));
  }

  const support::TemporaryFolder folder_;
};

TEST_F(JsonFile, IsReadAndParsed) {
  EXPECT_EQ(read_json_file(write("a.json", "{\"a\": 1}\n")).dump(), "{\"a\":1}");
}

TEST_F(JsonFile, ThatIsMissingIsReported) {
  const fs::path path = folder_ / "none.json";
  EXPECT_EQ(read_message(path),
            path.string() + ": cannot be opened (No such file or directory); check the path");
}

TEST_F(JsonFile, ThatIsADirectoryIsReported) {
  EXPECT_EQ(read_message(folder_.path()),
            folder_.path().string() + ": is a directory; give the path of a file");
}

TEST_F(JsonFile, ThatIsUnreadableIsReported) {
  if (::geteuid() == 0) GTEST_SKIP() << "root reads everything";
  const fs::path path = write("a.json", "{}");
  fs::permissions(path, fs::perms::none);
  EXPECT_EQ(read_message(path),
            path.string() + ": cannot be opened (Permission denied); check the path");
}

TEST_F(JsonFile, ThatIsEmptyIsReported) {
  const fs::path path = write("a.json", "");
  EXPECT_EQ(read_message(path),
            path.string() + ": the file is empty; check that it was written completely");
}

TEST_F(JsonFile, ThatIsTooLargeIsReportedWithoutReadingIt) {
  const fs::path path = write("a.json", "");
  fs::resize_file(path, 256 * 1024 * 1024 + 1);  // sparse
  EXPECT_EQ(read_message(path),
            path.string() + ": the file is larger than 256 MiB; check the path");
}

TEST_F(JsonFile, ThatIsTruncatedIsReportedWithItsPath) {
  const fs::path path = write("a.json", "{\"a\": ");
  EXPECT_EQ(
      read_message(path),
      path.string() + ": line 1, column 7: the text ends too early; check that it is complete");
}

TEST_F(JsonFile, IsReplacedAsAWholeAndNothingIsLeftBeside) {
  const fs::path path = write("a.json", "a longer old content");
  write_file_atomically(path, "new");
  EXPECT_EQ(read(path), "new");
  EXPECT_EQ(file_count(), 1U);
}

TEST_F(JsonFile, WrittenHasTheUsualPermissions) {
  const fs::path path = folder_ / "a.json";
  const mode_t old_mask = ::umask(022);
  write_file_atomically(path, "x");
  ::umask(old_mask);
  EXPECT_EQ(fs::status(path).permissions(), fs::perms(0644));
}

TEST_F(JsonFile, BehindASymbolicLinkIsReplacedAndTheLinkKept) {
  const fs::path path = write("a.json", "old");
  fs::create_symlink("a.json", folder_ / "link.json");
  write_file_atomically(folder_ / "link.json", "new");
  EXPECT_EQ(read(path), "new");
  EXPECT_TRUE(fs::is_symlink(folder_ / "link.json"));
}

TEST_F(JsonFile, InAMissingFolderCannotBeWritten) {
  const fs::path path = folder_ / "none" / "a.json";
  EXPECT_EQ(write_message(path), path.string() +
                                     ": cannot be written (No such file or directory); "
                                     "check the folder, its permissions and its free space");
}

TEST_F(JsonFile, IsNotWrittenOverADirectory) {
  EXPECT_EQ(write_message(folder_.path()),
            folder_.path().string() +
                ": cannot be written (Is a directory); "
                "check the folder, its permissions and its free space");
}

TEST_F(JsonFile, LeavesNoTemporaryFileWhenTheNameIsRefused) {
  const fs::path path = folder_ / std::string(300, 'n');
  EXPECT_EQ(write_message(path), path.string() +
                                     ": cannot be written (File name too long); "
                                     "check the folder, its permissions and its free space");
  EXPECT_EQ(file_count(), 0U);
}

TEST_F(JsonFile, DevicesAreWrittenInPlace) {
  write_file_atomically("/dev/null", "x");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  EXPECT_EQ(write_message("/dev/full"),
            "/dev/full: cannot be written (No space left on device); "
            "check the folder, its permissions and its free space");
}

constexpr std::int64_t kIntMin = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kIntMax = std::numeric_limits<std::int64_t>::max();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Calls `read` on layers[3].d_a holding `text`.
template <class Read>
std::string value_message(const std::string& text, Read read) {
  const Json json = Json::parse(text);
  return message_of([&] { read(JsonValue(json, "f.json", "layers[3].d_a")); });
}

TEST(JsonValue, IntegerNamesWhatItExpectedAndGot) {
  const auto at_least_1 = [](const JsonValue& value) { value.integer(1, kIntMax); };
  const std::string expected = "f.json: layers[3].d_a: expected an integer of at least 1 ";
  EXPECT_EQ(value_message("-4", at_least_1), expected + "(got -4)");
  EXPECT_EQ(value_message("2.5", at_least_1), expected + "(got 2.5)");
  EXPECT_EQ(value_message("3.0", at_least_1), expected + "(got 3.0)");
  EXPECT_EQ(value_message("\"x\"", at_least_1), expected + "(got \"x\")");
  EXPECT_EQ(value_message("true", at_least_1), expected + "(got true)");
  EXPECT_EQ(value_message("null", at_least_1), expected + "(got null)");
  EXPECT_EQ(value_message("[1]", at_least_1), expected + "(got an array)");
  EXPECT_EQ(value_message("{\"a\":1}", at_least_1), expected + "(got an object)");
  EXPECT_EQ(value_message("9223372036854775808", at_least_1),
            expected + "(got 9223372036854775808)");
}

TEST(JsonValue, IntegerSaysTheBoundsThatMatter) {
  const std::string expected = "f.json: layers[3].d_a: expected an integer";
  EXPECT_EQ(value_message("9", [](const JsonValue& value) { value.integer(1, 8); }),
            expected + " from 1 to 8 (got 9)");
  EXPECT_EQ(value_message("9", [](const JsonValue& value) { value.integer(kIntMin, 8); }),
            expected + " of at most 8 (got 9)");
  EXPECT_EQ(value_message("0.5", [](const JsonValue& value) { value.integer(kIntMin, kIntMax); }),
            expected + " (got 0.5)");
}

TEST(JsonValue, IntegerReturnsInclusiveBounds) {
  const Json json = parse_json("[1, 8, -9223372036854775808, 9223372036854775807]", "f.json");
  EXPECT_EQ(JsonValue(json[0], "f.json").integer(1, 8), 1);
  EXPECT_EQ(JsonValue(json[1], "f.json").integer(1, 8), 8);
  EXPECT_EQ(JsonValue(json[2], "f.json").integer(kIntMin, kIntMax), kIntMin);
  EXPECT_EQ(JsonValue(json[3], "f.json").integer(kIntMin, kIntMax), kIntMax);
}

TEST(JsonValue, NumberTakesIntegersAndNamesItsBounds) {
  const Json json = parse_json("[3, 0.25]", "f.json");
  EXPECT_EQ(JsonValue(json[0], "f.json").number(0, 3), 3.0);
  EXPECT_EQ(JsonValue(json[1], "f.json").number(0.25, 1), 0.25);
  const std::string expected = "f.json: layers[3].d_a: expected a number";
  EXPECT_EQ(value_message("1.5", [](const JsonValue& value) { value.number(0, 1); }),
            expected + " from 0 to 1 (got 1.5)");
  EXPECT_EQ(value_message("1", [](const JsonValue& value) { value.number(1.5, kInfinity); }),
            expected + " of at least 1.5 (got 1)");
  EXPECT_EQ(
      value_message("\"1\"", [](const JsonValue& value) { value.number(-kInfinity, kInfinity); }),
      expected + " (got \"1\")");
}

TEST(JsonValue, NonNegativeNumbersBeginAtZero) {
  const Json zero = 0;
  EXPECT_EQ(JsonValue(zero, "f.json").non_negative_number(), 0.0);
  EXPECT_EQ(value_message("-1e-9", [](const JsonValue& value) { value.non_negative_number(); }),
            "f.json: layers[3].d_a: expected a non-negative number (got -1e-09)");
  const Json infinite = kInfinity;
  EXPECT_THROW(JsonValue(infinite, "f.json").non_negative_number(), ConfigError);
}

TEST(JsonValue, OtherKindsNameWhatTheyExpect) {
  const std::string at = "f.json: layers[3].d_a: ";
  EXPECT_EQ(value_message("0", [](const JsonValue& value) { value.boolean(); }),
            at + "expected true or false (got 0)");
  EXPECT_EQ(value_message("0", [](const JsonValue& value) { value.string(); }),
            at + "expected a string (got 0)");
  EXPECT_EQ(value_message("\"\"", [](const JsonValue& value) { value.non_empty_string(); }),
            at + "expected a non-empty string (got \"\")");
  EXPECT_EQ(value_message("{}", [](const JsonValue& value) { value.array(); }),
            at + "expected an array (got an object)");
  EXPECT_EQ(value_message("\"c\"",
                          [](const JsonValue& value) {
                            value.choice({"a", "b"});
                          }),
            at + "expected one of \"a\", \"b\" (got \"c\")");
  EXPECT_EQ(value_message("1", [](const JsonValue& value) { value.fail("is odd; use 2"); }),
            at + "is odd; use 2");
}

TEST(JsonValue, ReturnsWhatItHolds) {
  const Json json = parse_json(R"([true, "", "b", null, {}, []])", "f.json");
  const std::vector<JsonValue> values = JsonValue(json, "f.json").array();
  EXPECT_TRUE(values[0].boolean());
  EXPECT_EQ(values[1].string(), "");
  EXPECT_EQ(values[2].non_empty_string(), "b");
  EXPECT_EQ(values[2].choice({"a", "b"}), 1U);
  EXPECT_TRUE(values[2].is_string());
  EXPECT_TRUE(values[3].is_null());
  EXPECT_TRUE(values[4].is_object());
  EXPECT_TRUE(values[5].is_array());
  EXPECT_EQ(values[5].path(), "[5]");
}

TEST(JsonValue, CutsLongValuesToFortyCharacters) {
  const auto read = [](const JsonValue& value) { value.boolean(); };
  const std::string at = "f.json: layers[3].d_a: expected true or false ";
  EXPECT_EQ(value_message("\"" + repeat("é", 40) + "\"", read),
            at + "(got \"" + repeat("é", 40) + "\")");
  EXPECT_EQ(value_message("\"" + repeat("é", 41) + "\"", read),
            at + "(got \"" + repeat("é", 40) + "...\")");
}

TEST(JsonValue, AtTheTopHasNoPath) {
  const Json json = 3;
  EXPECT_EQ(message_of([&] { JsonObject object(JsonValue(json, "f.json")); }),
            "f.json: expected an object (got 3)");
}

class JsonObjectTest : public testing::Test {
 protected:
  // The object at layers[3].
  JsonObject layer(const std::string& text) {
    json_ = parse_json(text, "f.json");
    return JsonObject(JsonValue(json_, "f.json", "layers[3]"));
  }

 private:
  Json json_;
};

TEST_F(JsonObjectTest, ReadsFieldsWithTheirPaths) {
  JsonObject object = layer(R"({"d_a": 4, "a b": [true]})");
  EXPECT_EQ(object.required("d_a").integer(1, 8), 4);
  EXPECT_EQ(object.required("d_a").path(), "layers[3].d_a");
  EXPECT_EQ(object.required("a b").array()[0].path(), "layers[3][\"a b\"][0]");
  EXPECT_FALSE(object.optional("none").has_value());
  EXPECT_NO_THROW(object.finish());
}

TEST_F(JsonObjectTest, TopLevelFieldsHaveNoLeadingPoint) {
  const Json json = parse_json(R"({"layers": [{"d_a": 1}]})", "f.json");
  const JsonValue layers = JsonObject(JsonValue(json, "f.json")).required("layers");
  EXPECT_EQ(JsonObject(layers.array()[0]).required("d_a").path(), "layers[0].d_a");
}

TEST_F(JsonObjectTest, OptionalReturnsAPresentNull) {
  EXPECT_TRUE(layer(R"({"a": null})").optional("a")->is_null());
}

TEST_F(JsonObjectTest, NamesAMissingField) {
  EXPECT_EQ(message_of([&] { layer("{}").required("d_a"); }),
            "f.json: layers[3]: missing field \"d_a\"; add it");
}

TEST_F(JsonObjectTest, SuggestsTheClosestFieldForAnUnknownOne) {
  JsonObject object = layer(R"({"d_a": 1, "dA": 2})");
  object.required("d_a");
  object.optional("name");
  EXPECT_EQ(message_of([&] { object.finish(); }),
            "f.json: layers[3]: unknown field \"dA\"; did you mean \"d_a\"?");
}

TEST_F(JsonObjectTest, PrefersFewerTypos) {
  JsonObject object = layer(R"({"factors": 1})");
  object.optional("actor");
  object.optional("factor");
  EXPECT_EQ(message_of([&] { object.finish(); }),
            "f.json: layers[3]: unknown field \"factors\"; did you mean \"factor\"?");
}

TEST_F(JsonObjectTest, ListsTheKnownFieldsWhenNoneIsClose) {
  JsonObject object = layer(R"({"frequency": 1})");
  for (const char* key : {"b", "c", "a"}) object.optional(key);
  EXPECT_EQ(message_of([&] { object.finish(); }),
            "f.json: layers[3]: unknown field \"frequency\"; known fields are a, b, c");
}

TEST_F(JsonObjectTest, DoesNotSuggestANameThatSharesNoLetter) {
  JsonObject object = layer(R"({"x": 1})");
  object.optional("y");
  EXPECT_EQ(message_of([&] { object.finish(); }),
            "f.json: layers[3]: unknown field \"x\"; known fields are y");
}

TEST_F(JsonObjectTest, SaysWhenNoFieldIsKnown) {
  EXPECT_EQ(message_of([&] { layer(R"({"x": 1})").finish(); }),
            "f.json: layers[3]: unknown field \"x\"; no fields are allowed here");
}

TEST_F(JsonObjectTest, EntriesComeInDocumentOrderAndCountAsAskedFor) {
  JsonObject object = layer(R"({"z": 1, "a": 2})");
  const auto entries = object.entries();
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(entries[0].first, "z");
  EXPECT_EQ(entries[1].first, "a");
  EXPECT_EQ(entries[1].second.path(), "layers[3].a");
  EXPECT_NO_THROW(object.finish());
}

TEST_F(JsonObjectTest, ExpectsItsFormat) {
  EXPECT_NO_THROW(layer(R"({"format": "plan/1"})").expect_format("plan/1"));
  EXPECT_EQ(message_of([&] { layer(R"({"format": "plan/2"})").expect_format("plan/1"); }),
            "f.json: layers[3].format: expected \"plan/1\" (got \"plan/2\")");
  EXPECT_EQ(message_of([&] { layer(R"({"format": 1})").expect_format("plan/1"); }),
            "f.json: layers[3].format: expected \"plan/1\" (got 1)");
  EXPECT_EQ(message_of([&] { layer("{}").expect_format("plan/1"); }),
            "f.json: layers[3]: missing field \"format\"; add it");
}

}  // namespace
}  // namespace spdkfac
