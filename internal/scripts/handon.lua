-- Is the end of release.lua, for releases that may find somebody in the queue, or no key of theirs.

local who, number, expiry, value
if member and queue then
	local place = string.sub(queue, 1, -6) .. 'bid'
	local bid, start = pcall('GET', place), #key .. ' ' .. key .. ' '
	if type(bid) == 'string' and string.sub(bid, 1, #start) == start then
		who, number, expiry, value =
			string.match(string.sub(bid, #start + 1), '^(%S+) (%S+) (%S+) (.*)$')
	end
	if who == member and value == ARGV[1] then call('DEL', place) end
end
if member and not ARGV[4] then pcall('ZREM', queue, member) end
if mine or member and v == '~' .. member then
	if ARGV[4] and type(pcall('ZADD', queue, ARGV[4], member)) == 'number' then
		call('PEXPIRE', queue, ARGV[5])
	end
	local first, sold
	while queue do
		local to = pcall('ZPOPMIN', queue)[1]
		if not to then break end
		first = first or to
		sold = to == who and not ARGV[4]
		if sold then call('SET', key, value, 'PX', expiry) end
		if to == member or hears(to, sold and key .. ' ' .. number) then
			first = to
			break
		end
		sold = false
	end
	if first then
		if not sold then call('SET', key, '~' .. first, 'PX', ARGV[2]) end
		local next = not ARGV[4] and
			pcall('ZRANGEBYSCORE', queue, '-inf', '+inf', 'LIMIT', 0, 1)[1]
		if next then pcall('PUBLISH', string.sub(next, 1, 39), string.sub(next, 40) .. '+') end
		return mine and 2 or 0
	end
	call('DEL', key)
	return mine and 1 or 0
end
if not v then return 0 end
local ttl = call('PTTL', key)
if ttl < 0 then return -1 end
return -2 - ttl
