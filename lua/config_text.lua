-- config_text - knobs that are texts: which model answers for which. Read here as gateways read them (gateway/scenario.c, fallback.c), so that
-- what is set is what is understood. Lines are separated by ; or line breaks and stored with '; ' between; none = no line at all.
--     fallback  big=middle,small; *=small
--     route     chat when prompt_tokens > 4000 and class = online -> chat-long; chat -> chat-small
-- A model that no gateway's upstreams take is not refused, since one may get such an upstream later; who sets it is told.
--
-- Keys behind {ns}:config:  models  hash  gateway -> the ms it said so, and what its upstreams take, each a line; * = any
--
-- deja_models KEYS {ns}:config  ARGV gateway models
--     Believed for 15 s. Reply: 1.

do
local BYTES_MAX, LINES_MAX, FALLBACKS_MAX, CONDITIONS_MAX = 8192, 256, 4, 8
local MODELS_FRESH_MS, MODELS_KEPT_S = 15000, 60

local function trim(s)
  return (string.gsub(string.gsub(s, '^%s+', ''), '%s+$', ''))
end

local ALONE = '"%s": expected no other line, ; or comment beside it: none stands alone'
local NAMED = 'the name of a model after %s: * stands for any only before it'

-- of: model -> the line that is of it
local function fallback_line(line, n, of)
  if string.lower(line) == 'none' then return nil, string.format(ALONE, line) end
  local model, list = string.match(line, '^([^=]+)=(.*)$')
  model, list = trim(model or ''), trim(list or '')
  local shape = '"' .. clean(line, 60) .. '": expected model=other,third with at most ' .. FALLBACKS_MAX .. ' others'
  if model == '' or list == '' then return nil, shape end
  local others = {}
  for other in string.gmatch(list .. ',', '([^,]*),') do
    other = trim(other)
    if other == '' then return nil, shape end
    if other == '*' then return nil, '"*": expected ' .. string.format(NAMED, '=') end
    if other == model then return nil, clean(model, 60) .. ' is its own fallback' end
    others[#others + 1] = other
  end
  if #others > FALLBACKS_MAX then return nil, shape end
  if of[model] then
    return nil, '"' .. clean(line, 60) .. '": line ' .. of[model] .. ' is of ' .. clean(model, 60) .. ' too: expected one line with all its others'
  end
  of[model] = n
  return model .. '=' .. table.concat(others, ',')
end

local NUMBERS = {prompt_tokens = 1, prompt_bytes = 1, max_tokens = 1, messages = 1, inflight = 1, load = 1}
local WORDS = {class = 1, tenant = 1, stream = 1}
-- what a word can be at all, and how that is said
local VALUES = {class = {online = 1, batch = 1, said = 'online or batch after class'}, stream = {yes = 1, no = 1, said = 'yes or no after stream'}}
local SIGNS = {['>'] = 1, ['>='] = 1, ['<'] = 1, ['<='] = 1, ['='] = 1, ['!='] = 1}

-- words, signs and arrows
local function tokens_of(line)
  local out, at = {}, 1
  while at <= #line do
    local blank = string.match(line, '^%s+', at)
    local token = not blank and (string.match(line, '^%->', at) or string.match(line, '^[<>=!]+', at))
    if blank then
      at = at + #blank
    else
      if not token then
        local from = at
        while at <= #line and not string.find(line, '^[%s<>=!]', at) and not string.find(line, '^%->', at) do at = at + 1 end
        token, at = string.sub(line, from, at - 1), from
      end
      out[#out + 1] = token
      at = at + #token
    end
  end
  return out
end

local function expected(token, what)
  return nil, '"' .. clean(token or '', 40) .. '": expected ' .. what
end

local function is_name(token)
  return token and token ~= '->' and token ~= 'when' and token ~= 'and' and not string.find(token, '^[<>=!]')
end

-- a|b: nil and what is wrong unless every one of them is there, and such as the word can be
local function values(name, value)
  if string.find('|' .. value .. '|', '||', 1, true) then return expected(value, 'a word on each side of |') end
  for one in string.gmatch(VALUES[name] and value or '', '[^|]+') do
    if VALUES[name][one] ~= 1 then return expected(one, VALUES[name].said) end
  end
  return true
end

-- the position after the condition at t[i], or nil and what is wrong
local function condition(t, i)
  local name, sign, value = t[i], t[i + 1], t[i + 2]
  if not name then return expected('', 'a condition after when or and') end
  if not NUMBERS[name] and not WORDS[name] then
    return expected(name, 'prompt_tokens, prompt_bytes, max_tokens, messages, inflight, load, class, tenant or stream')
  end
  if not sign then return expected(name, '> >= < <= = or != after it') end
  if not SIGNS[sign] or (WORDS[name] and sign ~= '=' and sign ~= '!=') then
    return expected(sign, WORDS[name] and '= or !=' or '> >= < <= = or !=')
  end
  if not value then return expected(sign, 'a value after it') end
  if WORDS[name] and not is_name(value) then return expected(value, 'a word') end
  if WORDS[name] then
    local good, problem = values(name, value)
    if not good then return nil, problem end
  end
  if NUMBERS[name] and not string.find(value, '^%d+$') then return expected(value, 'a whole number') end
  if NUMBERS[name] and #value > 18 then return expected(value, 'a whole number') end
  return i + 3
end

-- rules: those read so far
local function route_line(line, n, rules)
  local t = tokens_of(string.gsub(string.gsub(line, '^#.*$', ''), '%s#.*$', ''))
  if #t == 0 then return '' end
  if #t == 1 and string.lower(t[1]) == 'none' then return nil, string.format(ALONE, t[1]) end
  if not is_name(t[1]) then return expected(t[1], 'a model') end
  local i, conditions, problem = 2, 0, nil
  if t[2] == 'when' then
    repeat
      conditions = conditions + 1
      if conditions > CONDITIONS_MAX then return nil, 'more than ' .. CONDITIONS_MAX .. ' conditions' end
      i, problem = condition(t, i + 1)
      if not i then return nil, problem end
    until t[i] ~= 'and'
  end
  if t[i] ~= '->' then return expected(t[i], conditions > 0 and 'and or ->' or 'when or ->') end
  if not is_name(t[i + 1]) then return expected(t[i + 1], 'a model after ->') end
  if t[i + 1] == '*' then return expected('*', string.format(NAMED, '->')) end
  if t[i + 2] then return expected(t[i + 2], 'the end of the line') end
  rules[#rules + 1] = {model = t[1], target = t[i + 1], line = n}
  return table.concat(t, ' ')
end

-- A model may lead to itself to be left out of what later rules say; else the rule changes nothing: what is wrong, and its line.
local function without_change(rules)
  local later = {}
  local problem, line
  for i = #rules, 1, -1 do
    local r = rules[i]
    if r.model == r.target and not later[r.model] and not later['*'] then
      line = r.line
      problem = select(2, expected(r.target, 'another model after ->: it leads to itself, and no later line is of it or of *'))
    end
    later[r.model] = true
  end
  return problem, line
end

local READERS = {fallback = fallback_line, route = route_line}

-- The text as it is stored, or nil and what would be right.
function TEXTS.value(k, text)
  if #text > BYTES_MAX then return nil, k.name .. ': it has over ' .. BYTES_MAX .. ' bytes' end
  if string.lower(trim(text)) == 'none' then return 'none' end
  local out, n, before = {}, 0, {}
  local function wrong(at, problem)
    return nil, k.name .. ': line ' .. at .. ': ' .. problem .. ' (as in: ' .. k.choices .. ')'
  end
  for line in string.gmatch(text .. '\n', '([^;\n]*)[;\n]') do
    line = trim(line)
    if line ~= '' then
      n = n + 1
      local good, problem = READERS[k.name](line, n, before)
      if not good then return wrong(n, problem) end
      if good ~= '' then out[#out + 1] = good end
    end
  end
  if k.name == 'route' then
    local problem, at = without_change(before)
    if problem then return wrong(at, problem) end
  end
  if #out > LINES_MAX then return nil, k.name .. ': more than ' .. LINES_MAX .. ' lines' end
  if #out == 0 then return nil, k.name .. ': there is no line in it; none = no rules, unset = those of the start options' end
  return table.concat(out, '; ')
end

-- what some gateway's upstreams take: name -> true; nil when no gateway has said so lately
local function models_taken(key)
  local now, taken = now_ms(), nil
  local said = redis.call('HGETALL', key .. ':models')
  for i = 1, #said, 2 do
    local at, names = string.match(said[i + 1], '^(%d+)\n(.*)$')
    if at and now - tonumber(at) < MODELS_FRESH_MS then
      taken = taken or {}
      for name in string.gmatch(names, '[^\n]+') do taken[name] = true end
    end
  end
  return taken
end

-- What to tell who has set the text: '' or the models that it leads to and nobody takes.
function TEXTS.unserved(key, k, text)
  local taken = models_taken(key)
  if text == 'none' or not taken or taken['*'] then return '' end
  local out, seen = {}, {}
  for line in string.gmatch(text, '[^;]+') do
    local targets = k.name == 'route' and string.match(line, '(%S+)%s*$') or string.match(line, '=(.*)$') or ''
    for name in string.gmatch(targets, '[^,]+') do
      name = trim(name)
      if not taken[name] and not seen[name] then out[#out + 1] = clean(name, 60) end
      seen[name] = true
    end
  end
  if #out == 0 then return '' end
  return '; no upstream of any gateway takes ' .. table.concat(out, ', ') ..
    (k.name == 'route' and ': requests that a rule leads there fail' or ': passed over when fallbacks are asked')
end

redis.register_function('deja_models', function(keys, args)
  local tag, problem = space_of(keys, 'deja_models')
  if not tag then return bad(problem) end
  if #args ~= 2 then return bad('deja_models needs gateway models') end
  local key, now = '{' .. tag .. '}:config:models', now_ms()
  local said = redis.call('HGETALL', key)
  for i = 1, #said, 2 do
    if now - (tonumber(string.match(said[i + 1], '^%d+')) or 0) >= MODELS_FRESH_MS then redis.call('HDEL', key, said[i]) end
  end
  redis.call('HSET', key, args[1], string.format('%.0f', now) .. '\n' .. args[2])
  redis.call('EXPIRE', key, MODELS_KEPT_S)
  return 1
end)
end
