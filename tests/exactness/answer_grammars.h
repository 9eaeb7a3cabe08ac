#pragma once

// Grammars that answers are checked against: 30 JSON schemas, 20 regular expressions, 5 Lark
// grammars with expressions that say the same. Values are of bounded length, so that answers of
// small models end.

#include <string>
#include <vector>

namespace drafthouse::test {

inline const std::vector<std::string>& answer_schemas() {
  static const std::vector<std::string> all = {
      // Objects: all required, some optional, none; inner ones; names that need escapes.
      R"({"type":"object","properties":{"name":{"type":"string","maxLength":12},
          "age":{"type":"integer","minimum":0,"maximum":120}},
          "required":["name","age"],"additionalProperties":false})",
      R"({"type":"object","properties":{"a":{"type":"boolean"},"b":{"type":"null"},
          "c":{"enum":["x","y"]},"d":{"type":"integer","minimum":-9,"maximum":9}},
          "required":["c"],"additionalProperties":false})",
      R"({"type":"object","properties":{"city":{"type":"object","properties":{
          "name":{"type":"string","minLength":1,"maxLength":16},"place":{"type":"object",
          "properties":{"north":{"type":"boolean"},"grid":{"type":"integer","minimum":1,
          "maximum":99}},"required":["north","grid"],"additionalProperties":false}},
          "required":["name","place"],"additionalProperties":false}},
          "required":["city"],"additionalProperties":false})",
      R"({"type":"object","properties":{"größe":{"enum":["groß","klein"]},
          "say \"it\"":{"const":"a\\b"},"日本":{"enum":["東京","大阪","京都"]}},
          "required":["größe","say \"it\"","日本"],"additionalProperties":false})",
      R"({"type":"object","properties":{"kind":{"const":"point"}},"required":["kind"],
          "additionalProperties":{"type":"integer","minimum":0,"maximum":9},"maxProperties":3})",
      R"({"type":"object","properties":{},"additionalProperties":false})",
      // Arrays: bounds, of objects, of arrays, with a prefix, empty.
      R"({"type":"array","items":{"type":"integer","minimum":1,"maximum":500},
          "minItems":2,"maxItems":5})",
      R"({"type":"array","items":{"type":"object","properties":{"id":{"type":"integer",
          "minimum":1,"maximum":9},"tag":{"enum":["red","green","blue"]}},
          "required":["id","tag"],"additionalProperties":false},"minItems":1,"maxItems":3})",
      R"({"type":"array","items":{"type":"array","items":{"type":"boolean"},
          "minItems":2,"maxItems":2},"minItems":2,"maxItems":3})",
      R"({"type":"array","prefixItems":[{"enum":["on","off"]},{"type":"integer","minimum":0,
          "maximum":255}],"items":{"type":"boolean"},"minItems":2,"maxItems":4})",
      R"({"type":"array","items":{"type":"null"},"maxItems":0})",
      R"({"type":"object","properties":{"tags":{"type":"array","items":{"type":"string",
          "pattern":"^[a-z]{2,8}$"},"minItems":3,"maxItems":3}},
          "required":["tags"],"additionalProperties":false})",
      // Numbers.
      R"({"type":"object","properties":{"low":{"type":"integer","minimum":-100,"maximum":-1},
          "high":{"type":"integer","exclusiveMinimum":999,"exclusiveMaximum":2000}},
          "required":["low","high"],"additionalProperties":false})",
      R"({"type":"object","properties":{"even":{"type":"integer","minimum":0,"maximum":98,
          "multipleOf":2}},"required":["even"],"additionalProperties":false})",
      R"({"type":"array","items":{"type":"number","minimum":0,"maximum":1,"multipleOf":0.25},
          "minItems":1,"maxItems":3})",
      R"({"enum":[1,2.5,-3,"four",true,null,{"five":5},[6]]})",
      // Strings: patterns, formats, lengths in characters.
      R"({"type":"object","properties":{"when":{"type":"string","format":"date"},
          "at":{"type":"string","format":"time"}},"required":["when","at"],
          "additionalProperties":false})",
      R"({"type":"object","properties":{"id":{"type":"string","format":"uuid"},
          "from":{"type":"string","format":"ipv4"}},"required":["id","from"],
          "additionalProperties":false})",
      R"({"type":"string","pattern":"^(\\([0-9]{3}\\))?[0-9]{3}-[0-9]{4}$"})",
      R"({"type":"string","minLength":4,"maxLength":9})",
      R"({"type":"object","properties":{"code":{"type":"string","pattern":"^[A-Z]{3}-[0-9]{2,4}$"},
          "note":{"type":"string","maxLength":20}},"required":["code"],
          "additionalProperties":false})",
      R"({"type":"string","enum":["naïve café","Ωmega","emoji 😀","tab\there","new\nline"]})",
      // Alternatives and combinations.
      R"({"anyOf":[{"type":"integer","minimum":10,"maximum":99},{"type":"boolean"},
          {"type":"string","pattern":"^[xyz]{3}$"}]})",
      R"({"type":"object","properties":{"shape":{"anyOf":[
          {"type":"object","properties":{"kind":{"const":"circle"},"r":{"type":"integer",
          "minimum":1,"maximum":9}},"required":["kind","r"],"additionalProperties":false},
          {"type":"object","properties":{"kind":{"const":"square"},"side":{"type":"integer",
          "minimum":1,"maximum":9}},"required":["kind","side"],"additionalProperties":false}]}},
          "required":["shape"],"additionalProperties":false})",
      R"({"oneOf":[{"type":"integer","minimum":0,"maximum":9},{"type":"null"}]})",
      R"({"allOf":[{"type":"integer","minimum":5},{"maximum":50},{"multipleOf":5}]})",
      R"({"type":["boolean","null","integer"],"minimum":1,"maximum":3})",
      // References: to a part, to itself (of bounded depth only by the answer's end).
      R"({"$defs":{"day":{"enum":["Mon","Tue","Wed","Thu","Fri"]},"span":{"type":"object",
          "properties":{"from":{"$ref":"#/$defs/day"},"to":{"$ref":"#/$defs/day"}},
          "required":["from","to"],"additionalProperties":false}},
          "type":"array","items":{"$ref":"#/$defs/span"},"minItems":1,"maxItems":2})",
      R"({"$defs":{"tree":{"type":"object","properties":{"v":{"type":"integer","minimum":0,
          "maximum":9},"next":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/tree"}]}},
          "required":["v","next"],"additionalProperties":false}},"$ref":"#/$defs/tree"})",
      // All at once, as a program would ask for it.
      R"({"$defs":{"money":{"type":"object","properties":{"amount":{"type":"integer","minimum":0,
          "maximum":99999},"currency":{"enum":["EUR","USD","JPY"]}},
          "required":["amount","currency"],"additionalProperties":false}},
          "type":"object","properties":{"order":{"type":"string","pattern":"^[A-Z][0-9]{4}$"},
          "paid":{"type":"boolean"},"total":{"$ref":"#/$defs/money"},
          "lines":{"type":"array","items":{"type":"object","properties":{
          "item":{"type":"string","maxLength":10},"count":{"type":"integer","minimum":1,
          "maximum":20},"price":{"$ref":"#/$defs/money"}},"required":["item","count"],
          "additionalProperties":false},"minItems":1,"maxItems":2},
          "note":{"anyOf":[{"type":"null"},{"type":"string","maxLength":8}]}},
          "required":["order","paid","total","lines"],"additionalProperties":false})",
  };
  return all;
}

inline const std::vector<std::string>& answer_expressions() {
  static const std::vector<std::string> all = {
      "[a-z]{3,8}",
      "(yes|no|maybe)",
      "[0-9]{4}-[0-9]{2}-[0-9]{2}",
      "\\+[0-9]{3,12}",
      "[A-Z][a-z]{1,10}( [A-Z][a-z]{1,10}){0,2}",
      "#[0-9a-f]{6}",
      "(red|green|blue)(, (red|green|blue)){0,3}",
      "[0-9]{1,3}(\\.[0-9]{1,3}){3}",
      "(true|false)",
      "[a-z]{1,12}@[a-z]{1,12}\\.(com|org)",
      "\\(([0-9]{1,2}, ){2}[0-9]{1,2}\\)",
      "(a|b){10}",
      "The answer is [a-z ]{1,20}\\.",
      "<b>[a-zA-Z ]{1,16}</b>",
      "x=[0-9]{1,4};y=[0-9]{1,4}",
      "(Mon|Tue|Wed|Thu|Fri|Sat|Sun) [0-9]{2}:[0-9]{2}",
      "\"[^\"\\\\]{0,10}\"",
      "[01]{8}( [01]{8}){1,3}",
      "(ha){2,6}!",
      "- [a-z]{2,9}\\n- [a-z]{2,9}\\n- [a-z]{2,9}",
  };
  return all;
}

struct LarkCase {
  std::string grammar;
  std::string expression;  // matches the same texts
};

inline const std::vector<LarkCase>& answer_larks() {
  static const std::vector<LarkCase> all = {
      {"start: \"yes\" | \"no\"\n", "yes|no"},
      {"start: WORD (\" \" WORD){1,3} \".\"\nWORD: /[a-z]{1,7}/\n",
       "[a-z]{1,7}( [a-z]{1,7}){1,3}\\."},
      {"start: row row\nrow: NUMBER \",\" NUMBER \"\\n\"\nNUMBER: /-?[0-9]{1,3}/\n",
       "(-?[0-9]{1,3},-?[0-9]{1,3}\\n){2}"},
      {"start: term (OP term){1,2}\nterm: NUMBER | \"(\" NUMBER OP NUMBER \")\"\n"
       "OP: \"+\" | \"*\"\nNUMBER: /[1-9][0-9]?/\n",
       "([1-9][0-9]?|\\([1-9][0-9]?[+*][1-9][0-9]?\\))"
       "([+*]([1-9][0-9]?|\\([1-9][0-9]?[+*][1-9][0-9]?\\))){1,2}"},
      {"start: \"<\" name \">\" TEXT \"</\" name \">\"\nname: \"b\" | \"i\"\nTEXT: /[a-z "
       "]{1,12}/\n",
       "<[bi]>[a-z ]{1,12}</[bi]>"},
  };
  return all;
}

}  // namespace drafthouse::test
