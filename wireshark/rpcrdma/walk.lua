-- Walks the bytes of a message by the definition of its XDR type (RFC 4506).
--
-- The types come from xdr.lua, so this file knows no message. It calls nothing of Wireshark, so
-- that any Lua interpreter from 5.2 on runs it.
--
-- A walk returns the value, by the names of the fields, and a flat list of nodes that show.lua
-- turns into lines of the protocol tree: each with its depth, name, type, range and number. What is
-- not XDR ends the walk: the nodes before it are right, and `fault` says what is wrong.

local walk = {}

local WORD = 4

-- Reads a word at a byte offset that has been checked.
function walk.word(bytes, at)
  local a, b, c, d = bytes:byte(at + 1, at + WORD)
  return ((a * 256 + b) * 256 + c) * 256 + d
end

-- The number of bytes with which XDR fills opaque data of this length up to a multiple of four.
function walk.round_up(length)
  return (WORD - length % WORD) % WORD
end

local Walker = {}
Walker.__index = Walker

-- Ends the walk. error() with a table carries no position, and pcall() in walk.read catches it.
function Walker:fail(rule, text)
  error({ rule = rule, text = text, at = self.at }, 0)
end

-- Notes a violation that leaves the rest readable.
function Walker:note(rule, text)
  table.insert(self.notes, { rule = rule, text = text, node = #self.nodes })
end

function Walker:uint32()
  if #self.bytes - self.at < WORD then
    self:fail("form", "the header ends within a field")
  end
  local number = walk.word(self.bytes, self.at)
  self.at = self.at + WORD
  return number
end

-- Adds a node. Its length is known when its content has been walked.
function Walker:open(name, type)
  local node = { depth = self.depth, name = name, type = type, at = self.at, length = 0 }
  table.insert(self.nodes, node)
  return node
end

function Walker:close(node)
  node.length = self.at - node.at
end

function Walker:boolean()
  local number = self:uint32()
  if number > 1 then
    self:note("boolean", "boolean or optional data with the value " .. number)
  end
  return number ~= 0
end

-- Walks one value of a type. `name` is the name of the field that has it.
function Walker:one(name, type)
  local node = self:open(name, type)
  local value
  if type == "uint32" then
    value = self:uint32()
    node.number = value
  elseif type == "uint64" then
    -- Two halves, since a Lua 5.2 number is exact up to 2^53 only.
    value = { high = self:uint32(), low = self:uint32() }
    node.wide = value
  elseif type == "bool" then
    value = self:boolean()
    node.number = value and 1 or 0
  else
    value = self:named(name, node, type)
  end
  self:close(node)
  return value
end

function Walker:named(name, node, type)
  local definition = self.types[type]
  if not definition then
    self:fail("form", name .. " has a type that is not known here: " .. type)
  end
  if definition.kind == "enum" then
    local value = self:uint32()
    node.number = value
    if not definition.names[value] then
      self:close(node)
      self:fail("form", name .. " has no value " .. value)
    end
    return value
  end
  if definition.kind == "typedef" then
    local of = definition.of
    if of.shape == "one" then
      -- The field takes the place of its other name.
      table.remove(self.nodes)
      return self:one(name, of.type)
    end
    table.remove(self.nodes)
    return self:field({ name = name, type = of.type, shape = of.shape, length = of.length })
  end
  local value, outer = {}, self.current
  self.depth, self.current = self.depth + 1, value
  if definition.kind == "union" then
    local tag = definition.tag
    local number = self:field(tag)
    value[tag.name] = number
    local arm = definition.arms[number]
    if arm == nil then
      arm = definition.arms.default
    end
    if arm == nil then
      self:fail("form", tag.name .. " has no arm " .. number)
    elseif arm then
      value[arm.name] = self:field(arm)
    end
  else
    for _, field in ipairs(definition.fields) do
      value[field.name] = self:field(field)
    end
  end
  self.depth, self.current = self.depth - 1, outer
  return value
end

-- Walks opaque data. `fixed` is their length if that is not in front of them.
function Walker:opaque(name, fixed)
  local node = self:open(name, "opaque")
  local length = fixed or self:uint32()
  local pad = walk.round_up(length)
  if #self.bytes - self.at < length + pad then
    self:fail("form", name .. " of " .. length .. " bytes exceeds the message")
  end
  node.data = { at = self.at, length = length }
  self.at = self.at + length
  if self.bytes:sub(self.at + 1, self.at + pad):find("[^\0]") then
    self:note("round_up", "bytes that fill " .. name .. " up are not zero")
  end
  self.at = self.at + pad
  self:close(node)
  local value = { at = node.data.at, length = length, node = #self.nodes }
  if self.inside then
    self.depth = self.depth + 1
    value.type, value.value = self.inside(self, name, value)
    self.depth = self.depth - 1
  end
  return value
end

function Walker:array(field)
  local count = self:uint32()
  local least = self.least(field.type)
  if count * least > #self.bytes - self.at then
    self:fail("form", field.name .. " of " .. count .. " elements exceeds the message")
  end
  local value = {}
  for n = 1, count do
    value[n] = self:one(field.name, field.type)
  end
  return value
end

-- Walks optional data. A linked list becomes an array.
function Walker:optional(field)
  local definition = self.types[field.type]
  if not (definition and definition.kind == "list") then
    return self:boolean() and self:one(field.name, field.type) or nil
  end
  local value = {}
  while self:boolean() do
    table.insert(value, self:one(field.name, field.type))
  end
  return value
end

function Walker:field(field)
  if field.shape == "one" then
    return self:one(field.name, field.type)
  elseif field.shape == "optional" then
    return self:optional(field)
  elseif field.type == "opaque" then
    return self:opaque(field.name, field.length)
  end
  return self:array(field)
end

-- Walks opaque data that has been read, as a value of a type that fills it. A value that does not
-- match ends neither the walk nor the message around it, which the base protocol can still read.
function Walker:within(data, type)
  local inner = setmetatable({
    bytes = self.bytes:sub(1, data.at + data.length), at = data.at, depth = self.depth,
    nodes = self.nodes, notes = self.notes, types = self.types, least = self.least,
    inside = self.inside,
  }, Walker)
  local good, value = pcall(inner.one, inner, type, type)
  if good and inner.at < data.at + data.length then
    inner:note("form", data.at + data.length - inner.at .. " bytes follow " .. type)
  elseif not good then
    if not (value and value.rule) then
      error(value, 0)
    end
    inner:note(value.rule, value.text)
    return nil
  end
  return value
end

-- Returns a function that says the least length in bytes of a type.
local function lengths(types)
  local known, least = { uint32 = 4, uint64 = 8, bool = 4, opaque = 4 }, nil
  local function of(field)
    if field.shape == "fixed" then
      return field.length + walk.round_up(field.length)
    end
    return field.shape == "one" and least(field.type) or WORD
  end
  function least(type)
    if known[type] then
      return known[type]
    end
    local definition = types[type] or {}
    local length = WORD
    if definition.kind == "typedef" then
      length = of(definition.of)
    elseif definition.fields then
      length = 0
      for _, field in ipairs(definition.fields) do
        length = length + of(field)
      end
    end
    known[type] = length
    return length
  end
  return least
end

-- Walks `bytes` as a value of the type `root`.
--
-- `inside(walker, name, data)` is called for opaque data, with `walker.current`, the fields so far
-- of the structure around it. It may call `walker:within`; it returns the type and the value.
-- Returns a table: `value` (with what could be read), `nodes`, `notes`, `length` (bytes read), and
-- `fault` if the walk ended early.
function walk.read(types, root, bytes, inside)
  local walker = setmetatable({
    bytes = bytes, at = 0, depth = 0, nodes = {}, notes = {}, types = types,
    least = lengths(types), inside = inside,
  }, Walker)
  local definition, value, fault = types[root], {}, nil
  for _, field in ipairs(definition.fields) do
    local good, result = pcall(walker.field, walker, field)
    if not good then
      if not (result and result.rule) then
        error(result, 0)
      end
      fault = result
      break
    end
    value[field.name] = result
  end
  return {
    value = value, nodes = walker.nodes, notes = walker.notes, length = walker.at,
    fault = fault,
  }
end

-- Returns the number of bytes from one 64-bit offset to another, or nil if they are too far apart
-- to be in one segment.
function walk.distance(from, to)
  local high = to.high - from.high
  if high > 1 or high < -1 then
    return nil
  end
  return high * 4294967296 + (to.low - from.low)
end

return walk
