-- base - helpers for the functions people call with redis-cli: which key space is meant, words after the arguments, dates, numbers,
-- names that were nearly right. Everything of a key space ns lives behind the hash tag {ns}, so all keys of a call are on one node.

-- The key space of a call: any one key with a {tag} says it, as in {deja}:config. nil and what is wrong otherwise.
local function space_of(keys, name)
  local tag = #keys == 1 and string.match(keys[1], '{([^{}]+)}')
  if tag then return tag end
  return nil, name .. ' needs 1 key that names the key space, as in: FCALL ' .. name .. ' 1 {deja}:config ...'
end

-- args[from..] as WORD value pairs; known = 'IN BY NOTE'. Words that stand alone are listed in flags. Table, or nil and what is wrong.
local function options_of(args, from, name, known, flags)
  local out, i = {}, from
  while i <= #args do
    local word = string.upper(args[i])
    if string.find(' ' .. (flags or '') .. ' ', ' ' .. word .. ' ', 1, true) then
      out[word] = true
      i = i + 1
    elseif string.find(' ' .. known .. ' ', ' ' .. word .. ' ', 1, true) then
      if not args[i + 1] then return nil, name .. ': ' .. word .. ' needs a value after it' end
      out[word] = args[i + 1]
      i = i + 2
    else
      return nil, name .. ': "' .. args[i] .. '" is not understood here; what may follow is ' .. known ..
        (flags and flags ~= '' and ' ' .. flags or '') .. ' (a value with blanks needs quotes)'
    end
  end
  return out
end

-- What is UTF-8 (RFC 3629) stays, every other byte becomes a question mark: a JSON text with one of them would be read by nobody.
local UTF8 = {'^[\194-\223][\128-\191]', '^\224[\160-\191][\128-\191]', '^[\225-\236\238\239][\128-\191][\128-\191]',
              '^\237[\128-\159][\128-\191]', '^\240[\144-\191][\128-\191][\128-\191]',
              '^[\241-\243][\128-\191][\128-\191][\128-\191]', '^\244[\128-\143][\128-\191][\128-\191]'}

local function utf8_text(text)
  return (string.gsub(text, '[\128-\255]+', function(run)
    local out, at = {}, 1
    while at <= #run do
      local found
      for i = 1, #UTF8 do
        found = string.match(run, UTF8[i], at)
        if found then break end
      end
      out[#out + 1] = found or '?'
      at = at + (found and #found or 1)
    end
    return table.concat(out)
  end))
end

-- In one line and at most so many bytes, cut between characters.
local function clean(text, bytes_max)
  local line = utf8_text((string.gsub(text, '[%c]', ' ')))
  local n = math.min(#line, bytes_max)
  while n > 0 and n < #line and string.find(line, '^[\128-\191]', n + 1) do n = n - 1 end
  return string.sub(line, 1, n)
end

local function now_ms()
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end

-- Unix milliseconds -> 2026-01-31 12:00:00Z (days to civil date: H. Hinnant's chrono-compatible algorithms, public domain)
local function date_text(ms)
  local s = math.floor(ms / 1000)
  local days, rest = math.floor(s / 86400), s % 86400
  local z = days + 719468
  local era = math.floor(z / 146097)
  local doe = z - era * 146097
  local yoe = math.floor((doe - math.floor(doe / 1460) + math.floor(doe / 36524) - math.floor(doe / 146096)) / 365)
  local doy = doe - (365 * yoe + math.floor(yoe / 4) - math.floor(yoe / 100))
  local mp = math.floor((5 * doy + 2) / 153)
  local day, month = doy - math.floor((153 * mp + 2) / 5) + 1, mp < 10 and mp + 3 or mp - 9
  local year = yoe + era * 400 + (month <= 2 and 1 or 0)
  return string.format('%04d-%02d-%02d %02d:%02d:%02dZ', year, month, day, math.floor(rest / 3600), math.floor(rest / 60) % 60, rest % 60)
end

local function number_text(v)
  return string.format('%.15g', v)
end

-- Letters to insert, drop or change to get from a to b (Levenshtein).
local function distance(a, b)
  local row = {}
  for j = 0, #b do row[j] = j end
  for i = 1, #a do
    local diagonal = row[0]
    row[0] = i
    for j = 1, #b do
      local change = diagonal + (string.byte(a, i) == string.byte(b, j) and 0 or 1)
      diagonal = row[j]
      row[j] = math.min(change, row[j] + 1, row[j - 1] + 1)
    end
  end
  return row[#b]
end

-- ': did you mean "x"?' or ''
local function did_you_mean(name, names)
  local best, nearest = 1 + math.floor(#name / 3), nil
  for _, candidate in ipairs(names) do
    local d = #name <= 64 and distance(string.lower(name), candidate) or 64
    if d < best or (d == best and not nearest) then best, nearest = d, candidate end
  end
  return nearest and ': did you mean "' .. nearest .. '"?' or ''
end

local function json_list(items)
  return '[' .. table.concat(items, ',') .. ']'
end

local function json_value(v)
  return cjson.encode(type(v) == 'string' and utf8_text(v) or v)
end

-- {'name', value, ...} -> an object with its members in this order; a value that is a table {json = text} goes in as it is
local function json_object(pairs_)
  local out = {}
  for i = 1, #pairs_, 2 do
    local v = pairs_[i + 1]
    out[#out + 1] = json_value(pairs_[i]) .. ':' .. (type(v) == 'table' and v.json or json_value(v))
  end
  return '{' .. table.concat(out, ',') .. '}'
end

-- XADD items come as {id, {name, value, ...}} -> table
local function fields_of(item)
  local f = {id = item[1]}
  for i = 1, #item[2], 2 do
    f[item[2][i]] = item[2][i + 1]
  end
  return f
end
