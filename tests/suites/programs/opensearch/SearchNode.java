import java.nio.file.Path;
import java.util.List;
import java.util.Map;

import org.opensearch.Version;
import org.opensearch.common.settings.Settings;
import org.opensearch.node.InternalSettingsPreparer;
import org.opensearch.node.Node;
import org.opensearch.plugins.PluginInfo;
import org.opensearch.transport.Netty4ModulePlugin;

/**
 * One OpenSearch node in this process, without its distribution: java SearchNode FOLDER PORT.
 *
 * It answers REST on PORT of loopback until it is killed.
 */
public class SearchNode extends Node {
    private SearchNode(Settings settings, Path folder) {
        super(
                InternalSettingsPreparer.prepareEnvironment(settings, Map.of(), folder, () -> "search"),
                List.of(netty()),
                false);
    }

    /** REST is a plugin, which the distribution brings as a module. */
    private static PluginInfo netty() {
        String name = Netty4ModulePlugin.class.getName();
        return new PluginInfo(name, "REST", "NA", Version.CURRENT, "21", name, null, List.of(), false);
    }

    public static void main(String[] arguments) throws Exception {
        Path folder = Path.of(arguments[0]);
        Settings settings = Settings.builder()
                .put("path.home", folder)
                .put("node.name", "search")
                .put("cluster.name", "headwater-test")
                .put("discovery.type", "single-node")
                .put("network.host", "127.0.0.1")
                .put("http.port", arguments[1])
                .put("transport.port", Integer.parseInt(arguments[1]) + 1)
                .put("http.type", "netty4")
                .put("transport.type", "netty4")
                // A test's disk may be nearly full.
                .put("cluster.routing.allocation.disk.threshold_enabled", false)
                .build();
        new SearchNode(settings, folder).start();
        Thread.currentThread().join();
    }
}
