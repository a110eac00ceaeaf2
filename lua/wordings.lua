-- wordings - judged pairs: other wordings of an entry's question, and questions that must never get its answer. One record a text and
-- partition: e:<first 32 hex digits of sha1(partition "\n" text)>. Records outlive their entry: when it is stored anew they hold.
--
-- deja_wording KEYS {ns}  ARGV verb entry text by [field value]...
--     verb: approve (this text gets the entry's answer), veto (it never does), revoke (neither). by: who says so, as in "person",
--     "judge", "seed". Fields: ttl (s), emb and vec (its vector). Reply: the record's id.

local JUDGED_TTL_S = 90 * 86400
local TEXT_BYTES_MAX = 1024
local VETOES_MAX = 64

local function has_word(list, word)
  return string.find(' ' .. (list or '') .. ' ', ' ' .. word .. ' ', 1, true) ~= nil
end

local function without_word(list, word)
  local out = {}
  for w in string.gmatch(list or '', '%S+') do
    if w ~= word then out[#out + 1] = w end
  end
  return table.concat(out, ' ')
end

local function with_word(list, word)
  local out, n = without_word(list, word), 0
  for _ in string.gmatch(out, '%S+') do
    n = n + 1
  end
  if n >= VETOES_MAX then out = string.gsub(out, '^%S+ ?', '') end -- the oldest goes
  return out == '' and word or out .. ' ' .. word
end

-- e: partition, tenant, model, ns of the entry; extra: name -> value
local function judge_text(prefix, verb, entry, e, text, by, extra)
  local wid = string.sub(redis.sha1hex(e.part .. '\n' .. text), 1, 32)
  local key, now = prefix .. 'e:' .. wid, now_s()
  local old = redis.call('TYPE', key).ok == 'hash' and redis.call('HMGET', key, 'of', 'not', 'emb', 'vec', 'ttl') or {}
  local of, no = old[1] or '', old[2] or ''
  if verb == 'approve' then
    of, no = entry, without_word(no, entry)
  elseif verb == 'veto' then
    of, no = of == entry and '' or of, with_word(no, entry)
  else
    of, no = of == entry and '' or of, without_word(no, entry)
  end
  if of == '' and no == '' then
    local _, part = remove_entry(prefix, wid)
    tell(prefix, nil, 'op', 'del', 'id', wid, 'part', e.part, 'src', '')
    return wid, part
  end
  local ttl = number(extra.ttl, 1, 2 ^ 40) or number(old[5], 1, 2 ^ 40) or JUDGED_TTL_S
  local fields = {'v', '2', 'role', 'w', 'part', e.part, 'tenant', e.tenant or '', 'model', e.model or '', 'ns', e.ns or '', 'q',
                  text, 'of', of, 'not', no, 'by', by, 'created', tostring(now), 'ttl', tostring(ttl)}
  local emb, vec = extra.emb or old[3], extra.vec or old[4]
  if emb and vec then
    for _, v in ipairs({'emb', emb, 'vec', vec}) do
      fields[#fields + 1] = v
    end
  end
  place(prefix, wid, e.part, fields, 1, now + ttl, ttl, now)
  tell(prefix, nil, 'op', 'put', 'id', wid, 'part', e.part, 'src', extra.src or '', 'judged', '1')
  return wid
end

local function text_problem(text)
  if not text or text == '' then return 'the text is empty' end
  if #text > TEXT_BYTES_MAX then return 'the text is longer than ' .. TEXT_BYTES_MAX .. ' bytes' end
end

local function deja_wording(keys, args)
  local prefix = prefix_of(keys[1])
  if #keys ~= 1 or not prefix then return bad('deja_wording needs 1 key that names the key space, as in {deja}') end
  if #args < 4 or #args % 2 ~= 0 then return bad('deja_wording needs: verb entry text by [field value]...') end
  local verb, entry, text, by = args[1], args[2], args[3], args[4]
  if verb ~= 'approve' and verb ~= 'veto' and verb ~= 'revoke' then
    return bad('deja_wording: verb must be approve, veto or revoke, not ' .. verb)
  end
  if not is_id(entry) then return bad('deja_wording: entry must be the 32 hex digits of x-deja-entry') end
  local problem = text_problem(text)
  if problem then return bad('deja_wording: ' .. problem) end
  local extra = {}
  for i = 5, #args, 2 do
    extra[args[i]] = args[i + 1]
  end
  local e = stored_fields(prefix .. 'e:' .. entry)
  if not e and is_id(extra.part) then e = {part = extra.part, tenant = extra.tenant, model = extra.model, ns = extra.ns} end
  if not e or e.role == 'w' then return bad('deja_wording: there is no entry ' .. entry) end
  if not e.part or e.part == '' or e.part == string.rep('0', 32) then
    return bad('deja_wording: entry ' .. entry .. ' answers equal requests only')
  end
  if verb == 'approve' and e.q == text then return bad('deja_wording: this is the entry\'s own question') end
  local wid = judge_text(prefix, verb, entry, e, text, by, extra)
  return wid
end

redis.register_function('deja_wording', deja_wording)
